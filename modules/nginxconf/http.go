// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"strings"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// include is left over by the parser if a pattern has matched no file.
func (a *adapter) include(_ *scope, d *dir) error {
	if strings.ContainsAny(d.args[0], "*?[") {
		return nil
	}
	return d.errorf("%q may not be included here", d.args[0])
}

func (a *adapter) events(s *scope, d *dir) error {
	a.walk(newScope(s, inEvents, d), d.block)
	return nil
}

func (a *adapter) http(s *scope, d *dir) error {
	if a.httpScope != nil {
		return d.errorf("it is duplicate")
	}
	a.httpScope = newScope(s, inHTTP, d)
	// log formats and variables may be used before they stand
	a.walk(a.httpScope, d.block)
	return nil
}

func (a *adapter) server(s *scope, d *dir) error {
	in := newScope(s, inServer, d)
	s.inner = append(s.inner, in)
	v := &vhost{scope: in, at: d}
	in.values["vhost"] = v
	a.walk(in, d.block)
	if len(v.listens) == 0 {
		port := "8000"
		v.listens = append(v.listens, &listen{at: d, address: "tcp4/0.0.0.0:" + port, port: port})
	}
	for _, l := range list[[]serverName](onlyOwn(in), "server_name") {
		v.names = append(v.names, l...)
	}
	if v.names == nil {
		v.names = []serverName{{text: ""}}
	}
	a.vhosts = append(a.vhosts, v)
	return nil
}

// onlyOwn is s without what is around it.
func onlyOwn(s *scope) *scope {
	c := *s
	c.parent = nil
	return &c
}

// vhost is a server block.
type vhost struct {
	scope   *scope
	at      *dir
	listens []*listen
	names   []serverName
}

// serverName is one of a server's names.
type serverName struct {
	text  string // as written, without the tilde; in lower case
	regex bool
}

func readServerNames(a *adapter, d *dir) (any, error) {
	var names []serverName
	for _, n := range d.args {
		expr, regex := strings.CutPrefix(n, "~")
		if regex {
			if err := a.regex(d, expr); err != nil {
				return nil, err
			}
			names = append(names, serverName{expr, true})
			continue
		}
		n = strings.ToLower(n)
		if n == "$hostname" {
			n = hostname()
		}
		stars := strings.Count(n, "*")
		if stars > 1 || stars == 1 && !strings.HasPrefix(n, "*.") && !strings.HasSuffix(n, ".*") || strings.ContainsAny(n, "{}/$") {
			return nil, d.errorf("invalid server name %q", n)
		}
		names = append(names, serverName{n, false})
	}
	return names, nil
}

// location translates a location block.
func (a *adapter) location(s *scope, d *dir) error {
	l := &nginxhttp.Location{}
	switch {
	case len(d.args) == 2:
		l.Modifier, l.Path = d.args[0], d.args[1]
	case strings.HasPrefix(d.args[0], "@"):
		l.Modifier, l.Path = "@", d.args[0][1:]
	default:
		// the modifier may stand without a space
		l.Path = d.args[0]
		for _, m := range []string{"^~", "~*", "~", "="} {
			if rest, ok := strings.CutPrefix(l.Path, m); ok {
				l.Modifier, l.Path = m, rest
				break
			}
		}
	}
	switch l.Modifier {
	case "", "=", "^~":
	case "@":
		if s.kind != inServer {
			return d.errorf("the named location @%s can stand in server only", l.Path)
		}
	case "~", "~*":
		if err := a.regex(d, l.Path); err != nil {
			return err
		}
	default:
		return d.errorf("invalid modifier %q: expected =, ^~, ~ or ~*", l.Modifier)
	}
	if outer, ok := own[*nginxhttp.Location](s, "location"); ok {
		if err := nested(d, outer, l); err != nil {
			return err
		}
	}
	for _, other := range s.inner {
		o := other.values["location"].(*nginxhttp.Location)
		if o.Path == l.Path && (o.Modifier == l.Modifier || plainPrefix(o) && plainPrefix(l)) && o.Modifier[:min(1, len(o.Modifier))] != "~" {
			return d.errorf("duplicate location %q", l.Path)
		}
	}
	in := newScope(s, inLocation, d)
	in.values["location"] = l
	s.inner = append(s.inner, in)
	a.walk(in, d.block)
	return nil
}

func plainPrefix(l *nginxhttp.Location) bool { return l.Modifier == "" || l.Modifier == "^~" }

// nested checks a location inside another.
func nested(d *dir, outer, inner *nginxhttp.Location) error {
	switch {
	case outer.Modifier == "=":
		return d.errorf("location %q cannot be inside the exact location %q", inner.Path, outer.Path)
	case outer.Modifier == "@":
		return d.errorf("location %q cannot be inside the named location @%s", inner.Path, outer.Path)
	case inner.Modifier == "@":
		return d.errorf("the named location @%s can stand in server only", inner.Path)
	case plainPrefix(outer) && (plainPrefix(inner) || inner.Modifier == "=") && !strings.HasPrefix(inner.Path, outer.Path):
		return d.errorf("location %q is outside location %q", inner.Path, outer.Path)
	}
	return nil
}
