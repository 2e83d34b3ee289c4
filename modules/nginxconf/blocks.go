// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/access"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// body is the lines of a block that holds no directives, with those of included
// files.
func (a *adapter) body(d *dir) ([]*dir, error) { return a.lines(d, d.block, 0) }

func (a *adapter) lines(d *dir, block []*dir, depth int) ([]*dir, error) {
	var out []*dir
	for _, l := range block {
		if l.name != "include" || len(l.args) != 1 {
			out = append(out, l)
			continue
		}
		if depth > 8 {
			return nil, l.errorf("files include each other")
		}
		pattern := a.path(l.args[0])
		files := []string{pattern}
		if strings.ContainsAny(pattern, "*?[") {
			var err error
			if files, err = filepath.Glob(pattern); err != nil {
				return nil, l.errorf("%v", err)
			}
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, l.errorf("%v", err)
			}
			inner, err := parseLines(string(text), f)
			if err != nil {
				return nil, err
			}
			if inner, err = a.lines(d, inner, depth+1); err != nil {
				return nil, err
			}
			out = append(out, inner...)
		}
	}
	return out, nil
}

// parseLines reads a file of lines.
func parseLines(text, name string) ([]*dir, error) {
	var out []*dir
	var cur *dir
	for t := range crossplane.Lex(strings.NewReader(text)) {
		switch {
		case t.Error != nil:
			return nil, t.Error
		case !t.IsQuoted && strings.HasPrefix(t.Value, "#"):
		case !t.IsQuoted && t.Value == ";":
			if cur != nil {
				out = append(out, cur)
			}
			cur = nil
		case cur == nil:
			cur = &dir{name: unescape(t.Value), file: shown(name), line: t.Line}
		default:
			cur.args = append(cur.args, unescape(t.Value))
		}
	}
	if cur != nil {
		return nil, cur.errorf("it is not terminated by \";\"")
	}
	return out, nil
}

// addVariable registers a variable of the whole configuration.
func (a *adapter) addVariable(d *dir, arg string, v *nginxhttp.Variable) error {
	name, err := a.defines(d, arg)
	if err != nil {
		return err
	}
	warnings, err := v.Check()
	if err != nil {
		return d.errorf("%s", ofDirective(err.Error()))
	}
	for _, w := range warnings {
		a.warn(d, "%s", ofDirective(w))
	}
	a.variables[name] = v
	return nil
}

func (a *adapter) mapBlock(_ *scope, d *dir) error {
	a.uses(d, d.args[0])
	m, err := a.readMap(d, func(l *dir, text string) string {
		a.uses(l, text)
		return text
	})
	if err != nil {
		return err
	}
	a.noteValues(d.args[1], m.values)
	m.Source = template(d.args[0], nil)
	return a.addVariable(d, d.args[1], &nginxhttp.Variable{Map: &m.Map})
}

func (a *adapter) geoBlock(_ *scope, d *dir) error {
	g, err := a.readGeo(d)
	if err != nil {
		return err
	}
	if len(d.args) == 2 {
		a.uses(d, d.args[0])
		g.Address = template(d.args[0], nil)
	}
	name := d.args[len(d.args)-1]
	a.noteValues(name, g.values)
	return a.addVariable(d, name, &nginxhttp.Variable{Geo: &g.Geo})
}

func (a *adapter) splitBlock(_ *scope, d *dir) error {
	a.uses(d, d.args[0])
	s, err := a.readSplit(d)
	if err != nil {
		return err
	}
	a.noteValues(d.args[1], s.values)
	s.Source = template(d.args[0], nil)
	return a.addVariable(d, d.args[1], &nginxhttp.Variable{Split: &s.Split})
}

// ofDirective is a text of one of our packages without the package's name: that
// of the directive stands before it.
func ofDirective(text string) string {
	for _, pkg := range []string{"geo: ", "splitclients: ", "nginxmap: ", "access: "} {
		text = strings.TrimPrefix(text, pkg)
	}
	return text
}

// noteValues remembers what a variable may be, for a proxy_pass to it.
func (a *adapter) noteValues(arg string, values []string) {
	name := strings.ToLower(strings.TrimPrefix(arg, "$"))
	a.possible[name] = append(a.possible[name], values...)
}

func (a *adapter) typesBlock(s *scope, d *dir) error {
	lines, err := a.body(d)
	if err != nil {
		return err
	}
	types, ok := own[map[string]string](s, "types")
	if !ok {
		types = map[string]string{}
		s.values["types"] = types
	}
	for _, l := range lines {
		for _, ext := range l.args {
			types[strings.ToLower(ext)] = l.name
		}
	}
	return nil
}

// accessRule translates allow and deny, whose order counts.
func (a *adapter) accessRule(s *scope, d *dir) error {
	r := access.Rule{Allow: d.name == "allow", Match: d.args[0]}
	if _, err := access.New([]access.Rule{r}); err != nil {
		return d.errorf("%s", ofDirective(err.Error()))
	}
	s.lists["access"] = append(s.lists["access"], r)
	return nil
}

func readTemplates(a *adapter, d *dir) (any, error) {
	for _, w := range d.args {
		a.uses(d, w)
	}
	return d.args, nil
}

func readAddHeader(a *adapter, d *dir) (any, error) {
	h := &nginxhttp.AddHeader{Name: d.args[0], Value: template(d.args[1], nil)}
	a.uses(d, d.args[1])
	if len(d.args) == 3 {
		if d.args[2] != "always" {
			return nil, d.errorf("invalid parameter %q: expected always", d.args[2])
		}
		h.Always = true
	}
	return h, nil
}

// tlsStatuses are nginx's own for requests that do not come so far in Caddy.
var tlsStatuses = map[int]string{
	495: "a client with a bad certificate gets no connection",
	496: "a client without a certificate gets no connection",
	497: "plain HTTP to a port of TLS is answered by Go's server with 400",
}

func readErrorPage(a *adapter, d *dir) (any, error) {
	p := &nginxhttp.ErrorPage{}
	words := d.args[:len(d.args)-1]
	target := d.args[len(d.args)-1]
	if code, ok := strings.CutPrefix(words[len(words)-1], "="); ok {
		words = words[:len(words)-1]
		p.Response = -1
		if code != "" {
			n, err := strconv.Atoi(code)
			if err != nil || n < 100 || n > 999 {
				return nil, d.errorf("invalid status %q", code)
			}
			p.Response = n
		}
	}
	for _, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil || n < 300 || n > 599 || n == 499 {
			return nil, d.errorf("invalid status %q: expected 300 to 599 but 499", w)
		}
		p.Status = append(p.Status, n)
	}
	if len(p.Status) == 0 {
		return nil, d.errorf("expected a status and a URI")
	}
	if i := slices.IndexFunc(p.Status, func(n int) bool { return tlsStatuses[n] != "" }); i >= 0 {
		a.warn(d, "%d does not occur here: %s", p.Status[i], tlsStatuses[p.Status[i]])
	}
	a.uses(d, target)
	p.URI = template(target, nil)
	return p, nil
}
