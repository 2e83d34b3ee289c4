// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/nginxmap"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddyconfig.RegisterAdapter("nginx-upstream", Adapter{}) }

// Adapter turns an nginx.conf into a configuration of Caddy.
type Adapter struct{}

// Adapt implements caddyconfig.Adapter. The options are `filename`, the path of
// the file, which relative paths are below, and `version`, the version of nginx
// whose defaults hold.
func (Adapter) Adapt(body []byte, options map[string]any) ([]byte, []caddyconfig.Warning, error) {
	name, _ := options["filename"].(string)
	if name == "" {
		name = "nginx.conf"
	}
	dirs, comments, err := parse(body, name)
	if err != nil {
		return nil, nil, err
	}
	a := newAdapter(name)
	if err := a.options(comments, options); err != nil {
		return nil, nil, err
	}
	config, err := a.adapt(dirs)
	if err != nil {
		return nil, a.warnings, err
	}
	out, err := json.Marshal(config)
	return readable(out), a.warnings, err
}

// readable is a JSON text with <, > and & as people write them, which
// encoding/json escapes for the sake of HTML.
func readable(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		n := 1
		if text[0] == '\\' {
			n = 2
		}
		switch {
		case bytes.HasPrefix(text, []byte(`\u003c`)):
			out, n = append(out, '<'), 6
		case bytes.HasPrefix(text, []byte(`\u003e`)):
			out, n = append(out, '>'), 6
		case bytes.HasPrefix(text, []byte(`\u0026`)):
			out, n = append(out, '&'), 6
		default:
			n = min(n, len(text))
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}

// adapter is one translation.
type adapter struct {
	dir     string // what relative paths are below
	version version
	admin   string
	workers int
	// resolves: there is a resolver for names in variables.
	limitsClients bool // something says when connections of clients end
	resolves      bool
	resolving     []*group // all upstream blocks

	httpScope *scope
	vhosts    []*vhost

	groups   map[string]*group // by name in lower case
	implicit map[string]*group // by address
	order    []*group          // the upstream blocks, as they stand

	streamScope     *scope
	streams         []*streamServer
	streamGroups    map[string]*group
	streamVariables map[string]json.RawMessage // handlers by the name of their variable
	streamOrder     []string                   // the names, as they stand
	streamFormats   map[string]logFormat
	streamZones     map[string]string // keys of limit_conn_zone

	ids map[string]bool

	variables map[string]*nginxhttp.Variable
	known     map[string]bool     // names that the configuration defines
	possible  map[string][]string // what a variable may be
	used      []use

	streamUsed []use

	formats map[string]logFormat
	loggers map[string]string
	logs    map[string]*caddy.CustomLog

	certificates []*certificate
	certIndex    map[string]string // tags by files

	warnings []caddyconfig.Warning
	errs     []error
}

func newAdapter(name string) *adapter {
	dir := filepath.Dir(name)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &adapter{
		dir: dir, version: version{1, 31, 5}, workers: 1,
		streamGroups: map[string]*group{}, streamVariables: map[string]json.RawMessage{},
		streamFormats: map[string]logFormat{}, streamZones: map[string]string{},
		groups: map[string]*group{}, implicit: map[string]*group{}, ids: map[string]bool{},
		variables: map[string]*nginxhttp.Variable{}, known: map[string]bool{}, possible: map[string][]string{},
		formats: map[string]logFormat{}, loggers: map[string]string{}, logs: map[string]*caddy.CustomLog{},
		certIndex: map[string]string{},
	}
}

// path is a path of the configuration, below the folder of the file.
func (a *adapter) path(p string) string {
	if filepath.IsAbs(p) || strings.HasPrefix(p, "$") {
		return p
	}
	return filepath.Join(a.dir, p)
}

// adapt makes the configuration.
func (a *adapter) adapt(dirs []*dir) (*caddy.Config, error) {
	main := newScope(nil, inMain, nil)
	a.walk(main, dirs)
	a.defineVersion()
	a.checkVariables()
	a.resolvers()
	if a.httpScope == nil && a.streamScope == nil && len(a.errs) == 0 {
		a.errs = append(a.errs, errors.New("there is no http block and no stream block: nothing to do"))
	}
	if len(a.errs) > 0 {
		return nil, joinErrors(a.errs)
	}
	if len(a.vhosts)+len(a.streams) == 0 {
		return nil, errors.New("there is no server block: nothing to do")
	}
	apps := caddy.ModuleMap{}
	if len(a.vhosts) > 0 {
		app, err := a.httpApp()
		if err != nil {
			return nil, err
		}
		apps["http"] = caddyconfig.JSON(app, nil)
	}
	if len(a.streams) > 0 {
		app, err := a.streamApp()
		if err != nil {
			return nil, err
		}
		apps["stream"] = caddyconfig.JSON(app, nil)
	}
	if groups := a.usedGroups(); len(groups) > 0 {
		apps["upstream"] = caddyconfig.JSON(upstream.App{Groups: groups}, nil)
	}
	if len(a.variables) > 0 {
		apps["nginx"] = caddyconfig.JSON(nginxhttp.App{Variables: a.variables}, nil)
	}
	if len(a.certificates) > 0 {
		apps["tls"] = a.tlsApp()
	}
	config := &caddy.Config{AppsRaw: apps, Admin: &caddy.AdminConfig{
		Disabled: a.admin == "", Listen: a.admin, Config: &caddy.ConfigSettings{Persist: new(bool)},
	}}
	if len(a.logs) > 0 {
		a.logs["default"] = &caddy.CustomLog{Exclude: []string{"http.log.access", "stream.log.access"}}
		config.Logging = &caddy.Logging{Logs: a.logs}
	}
	return config, nil
}

// usedGroups are the groups of the configuration; blocks that no proxy_pass
// names are kept, for they may be used through the API.
func (a *adapter) usedGroups() map[string]*upstream.Group {
	out := map[string]*upstream.Group{}
	for _, g := range a.groups {
		out[g.id] = g.config
	}
	for _, g := range a.implicit {
		out[g.id] = g.config
	}
	for _, g := range a.streamGroups {
		out[g.id] = g.config
	}
	return out
}

// defineVersion makes $nginx_version, where it is used.
func (a *adapter) defineVersion() {
	if a.usesAny([]string{versionVariable}) {
		a.known[versionVariable] = true
		a.variables[versionVariable] = &nginxhttp.Variable{Map: &nginxhttp.Map{
			Entries: []nginxmap.Entry{{Pattern: "default", Value: a.version.String()}},
		}}
	}
}

// version is a version of nginx.
type version [3]int

func (v version) atLeast(major, minor, patch int) bool {
	w := version{major, minor, patch}
	for i := range v {
		if v[i] != w[i] {
			return v[i] > w[i]
		}
	}
	return true
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func parseVersion(s string) (v version, err error) {
	parts := strings.Split(s, ".")
	if len(parts) > 3 || len(parts) < 2 {
		return v, errVersion
	}
	for i, p := range parts {
		if v[i], err = strconv.Atoi(p); err != nil || v[i] < 0 {
			return v, errVersion
		}
	}
	if !v.atLeast(1, 0, 0) {
		return v, errVersion
	}
	return v, nil
}

var errVersion = errors.New("expected a version of nginx as 1.28 or 1.29.7")

var magic = regexp.MustCompile(`^\s*caddy-upstream:\s*(\S+)\s*(.*?)\s*$`)

// options reads what the caller and the comments of the file say to the adapter.
func (a *adapter) options(comments []string, options map[string]any) error {
	set := map[string]func(string) error{
		"nginx": func(v string) (err error) { a.version, err = parseVersion(v); return err },
		"admin": func(v string) error { a.admin = v; return nil },
	}
	for _, c := range comments {
		m := magic.FindStringSubmatch(c)
		if m == nil {
			continue
		}
		f := set[m[1]]
		if f == nil || m[2] == "" {
			return errors.New("comment #" + c + ": expected caddy-upstream: nginx <version> or caddy-upstream: admin <address>")
		}
		if err := f(m[2]); err != nil {
			return errors.New("comment #" + c + ": " + err.Error())
		}
	}
	if v, ok := options["version"].(string); ok && v != "" {
		if err := set["nginx"](v); err != nil {
			return errors.New("option version " + strconv.Quote(v) + ": " + err.Error())
		}
	}
	return nil
}

// lookup is the addresses of a host name.
var lookup = net.LookupHost

// Interface guard
var _ caddyconfig.Adapter = Adapter{}
