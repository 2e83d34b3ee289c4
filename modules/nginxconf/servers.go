// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// socket is an address with the server blocks that listen there.
type socket struct {
	address string
	ssl     bool
	http2   bool
	proxy   bool
	def     *vhost
	vhosts  []*vhost
}

// key is equal for sockets that one server of Caddy can serve.
func (s *socket) key() string {
	return fmt.Sprint(s.ssl, s.http2, s.proxy, fmt.Sprintf("%p", s.def), fmt.Sprintf("%p", s.vhosts))
}

// sockets collects the addresses of all server blocks.
func (a *adapter) sockets() ([]*socket, error) {
	var out []*socket
	byAddress := map[string]*socket{}
	explicit := map[string]bool{}
	for _, v := range a.vhosts {
		for _, l := range v.listens {
			s := byAddress[l.address]
			if s == nil {
				s = &socket{address: l.address, def: v}
				byAddress[l.address] = s
				out = append(out, s)
			}
			s.vhosts = append(s.vhosts, v)
			s.ssl = s.ssl || l.ssl
			s.http2 = s.http2 || l.http2 || value(v.scope, "http2", false)
			s.proxy = s.proxy || l.proxy
			if l.isDef {
				if explicit[l.address] {
					return nil, l.at.errorf("a duplicate default server for %s", l.at.args[0])
				}
				explicit[l.address] = true
				s.def = v
			}
		}
	}
	return out, nil
}

// httpApp makes the servers of Caddy: one for each set of addresses with the
// same server blocks.
func (a *adapter) httpApp() (*caddyhttp.App, error) {
	sockets, err := a.sockets()
	if err != nil {
		return nil, err
	}
	app := &caddyhttp.App{Servers: map[string]*caddyhttp.Server{}}
	byKey := map[string]*caddyhttp.Server{}
	for _, s := range sockets {
		key := s.key()
		if srv := byKey[key]; srv != nil {
			srv.Listen = append(srv.Listen, s.address)
			continue
		}
		srv, err := a.serve(s)
		if err != nil {
			return nil, err
		}
		byKey[key] = srv
		app.Servers["srv"+strconv.Itoa(len(app.Servers))] = srv
	}
	return app, nil
}

// serve makes the server of Caddy for a socket.
func (a *adapter) serve(s *socket) (*caddyhttp.Server, error) {
	srv := &caddyhttp.Server{
		Listen:    []string{s.address},
		AutoHTTPS: &caddyhttp.AutoHTTPSConfig{Disabled: true},
		Protocols: []string{"h1"},
	}
	switch {
	case s.http2 && s.ssl:
		srv.Protocols = []string{"h1", "h2"}
	case s.http2:
		srv.Protocols = []string{"h1", "h2c"}
	}
	def := s.def.scope
	srv.ReadHeaderTimeout = caddy.Duration(value(def, "client_header_timeout", 60*time.Second))
	srv.ReadIdleTimeout = caddy.Duration(value(def, "client_body_timeout", 60*time.Second))
	srv.WriteIdleTimeout = caddy.Duration(value(def, "send_timeout", 60*time.Second))
	idle, err := clientKeepaliveTimeout(s.def)
	if err != nil {
		return nil, err
	}
	srv.IdleTimeout = idle
	buffers := value(def, "large_client_header_buffers", headerBuffers{})
	srv.MaxHeaderBytes = buffers.number * buffers.size
	a.warnOfOthers(s)
	srv.ListenerWrappersRaw = a.wrappers(s)
	if s.http2 && a.usesAny([]string{"bytes_sent", "request_length"}) {
		a.warn(s.def.at, "over HTTP/2 $bytes_sent is that of the body, and $request_length is empty")
	}
	if s.ssl {
		if err := a.tlsPolicies(s, srv); err != nil {
			return nil, err
		}
	}
	if err := a.routes(s, srv); err != nil {
		return nil, err
	}
	if len(a.logs) > 0 {
		srv.Logs = &caddyhttp.ServerLogConfig{}
		// requests that no server block sees are those of the default server
		for _, l := range list[*accessLog](s.def.scope, "access_log") {
			if l.path == "" || l.cond != "" {
				continue
			}
			if srv.Logs.DefaultLoggerName, err = a.logger(l); err != nil {
				return nil, err
			}
			break
		}
	}
	return srv, nil
}

// warnOfOthers tells what servers say of connections without being the default
// of their address.
func (a *adapter) warnOfOthers(s *socket) {
	for _, v := range s.vhosts {
		for _, name := range []string{"client_header_timeout", "client_body_timeout", "send_timeout", "keepalive_timeout", "large_client_header_buffers"} {
			if said, ok := v.scope.values[name]; ok && v != s.def && !reflect.DeepEqual(said, value[any](s.def.scope, name, nil)) {
				a.warn(v.at, "%s: that of the default server of the address counts", name)
			}
		}
	}
}

func clientKeepaliveTimeout(v *vhost) (caddy.Duration, error) {
	words := value(v.scope, "keepalive_timeout", []string{"75s"})
	t, err := parseTime(words[0])
	if err != nil {
		return 0, v.at.errorf("keepalive_timeout: %v", err)
	}
	return caddy.Duration(t), nil
}

// wrappers are those of a socket's listener: for the PROXY header, and for the
// variables of the connection if there are any.
func (a *adapter) wrappers(s *socket) (out []json.RawMessage) {
	count := a.usesAny(connVariables) || a.limitsClients
	add := func(c nginxhttp.Connections) {
		if c != (nginxhttp.Connections{}) {
			out = append(out, caddyconfig.JSONModuleObject(c, "wrapper", "nginx", nil))
		}
	}
	if s.ssl && s.proxy { // the header comes before TLS, what is counted after it
		add(nginxhttp.Connections{ProxyProtocol: true})
		out = append(out, json.RawMessage(`{"wrapper":"tls"}`))
		add(nginxhttp.Connections{Count: count})
		return out
	}
	add(nginxhttp.Connections{ProxyProtocol: s.proxy, Count: count})
	return out
}

// connVariables are those that need to know the client's connection.
var connVariables = []string{"connection", "connection_requests", "connection_time", "bytes_sent", "request_length"}

// usesAny reports whether any of the variables is used anywhere.
func (a *adapter) usesAny(names []string) bool {
	return slices.ContainsFunc(a.used, func(u use) bool { return slices.Contains(names, u.name) })
}

// named is a name of a server with what matches it.
type named struct {
	v    *vhost
	rank int    // 0 whole, 1 *.x, 2 x.*, 3 regular expression
	text string // as the matcher nginx_host has it
}

// names lists how the servers of a socket are told apart, in nginx's order.
func (a *adapter) names(s *socket) []named {
	var out []named
	seen := map[string]bool{}
	for _, v := range s.vhosts {
		for _, n := range v.names {
			key := strconv.FormatBool(n.regex) + n.text
			if seen[key] {
				if n.text != "" {
					a.warn(v.at, "conflicting server name %q, ignored", n.text)
				}
				continue
			}
			seen[key] = true
			out = append(out, nameRules(v, n)...)
		}
	}
	slices.SortStableFunc(out, func(x, y named) int {
		if x.rank != y.rank {
			return x.rank - y.rank
		}
		if x.rank == 1 || x.rank == 2 {
			return len(y.text) - len(x.text) // longer ones first
		}
		return 0
	})
	return out
}

func nameRules(v *vhost, n serverName) []named {
	switch {
	case n.regex:
		return []named{{v, 3, "~" + n.text}}
	case n.text == "_" || n.text == "-":
		return nil
	case strings.HasPrefix(n.text, "*."):
		return []named{{v, 1, n.text}}
	case strings.HasPrefix(n.text, "."):
		return []named{{v, 0, n.text[1:]}, {v, 1, "*" + n.text}}
	case strings.HasSuffix(n.text, ".*"):
		return []named{{v, 2, n.text}}
	}
	return []named{{v, 0, n.text}}
}

// routes makes the routes that choose the server block.
func (a *adapter) routes(s *socket, srv *caddyhttp.Server) error {
	handlers := map[*vhost]json.RawMessage{}
	for _, v := range s.vhosts {
		h, err := a.vhostHandler(v, len(s.vhosts) == 1)
		if err != nil {
			return err
		}
		handlers[v] = h
	}
	if len(s.vhosts) == 1 {
		srv.Routes = caddyhttp.RouteList{{HandlersRaw: []json.RawMessage{handlers[s.def]}}}
		return nil
	}
	rules := merge(a.names(s))
	if n := len(rules); n > 0 && rules[n-1].v == s.def && !rules[n-1].groups() {
		rules = rules[:n-1] // it gets the rest anyway
	}
	if !slices.ContainsFunc(rules, func(r rule) bool { return r.patterns }) {
		rules = slices.DeleteFunc(rules, func(r rule) bool { return r.v == s.def })
	}
	uses := map[*vhost]int{s.def: 1}
	for _, r := range rules {
		uses[r.v]++
	}
	route := func(v *vhost) caddyhttp.Route {
		h := handlers[v]
		if uses[v] > 1 {
			name := "server-" + strconv.Itoa(slices.Index(s.vhosts, v))
			if srv.NamedRoutes == nil {
				srv.NamedRoutes = map[string]*caddyhttp.Route{}
			}
			srv.NamedRoutes[name] = &caddyhttp.Route{HandlersRaw: []json.RawMessage{h}}
			h = handler("invoke", map[string]string{"name": name})
		}
		return caddyhttp.Route{HandlersRaw: []json.RawMessage{h}, Terminal: true}
	}
	for _, r := range rules {
		rt := route(r.v)
		rt.MatcherSetsRaw = []caddy.ModuleMap{r.matcher()}
		srv.Routes = append(srv.Routes, rt)
	}
	srv.Routes = append(srv.Routes, route(s.def))
	return nil
}

// rule is a route for one server.
type rule struct {
	v        *vhost
	names    []string
	patterns bool // some are not whole names
}

// groups reports whether a name may make variables.
func (r rule) groups() bool {
	return slices.ContainsFunc(r.names, func(n string) bool { return strings.HasPrefix(n, "~") })
}

// merge puts names into one rule as far as their order allows it: the whole
// names of a server, of which none hides another, and those that stand together.
func merge(names []named) []rule {
	var out []rule
	whole := map[*vhost]int{}
	for _, n := range names {
		at, ok := whole[n.v]
		if n.rank > 0 {
			at = len(out) - 1
			ok = at >= 0 && out[at].v == n.v
		}
		if !ok {
			at = len(out)
			out = append(out, rule{v: n.v})
		}
		if n.rank == 0 {
			whole[n.v] = at
		}
		out[at].names = append(out[at].names, n.text)
		out[at].patterns = out[at].patterns || n.rank > 0
	}
	return out
}

func (r rule) matcher() caddy.ModuleMap {
	return caddy.ModuleMap{"nginx_host": caddyconfig.JSON(nginxhttp.Host{Names: r.names}, nil)}
}

// vhostHandler makes the handler of a server block. alone: no matcher has looked
// at the name of requests.
func (a *adapter) vhostHandler(v *vhost, alone bool) (json.RawMessage, error) {
	h := &nginxhttp.Server{KeepSlashes: !value(v.scope, "merge_slashes", true)}
	if alone && slices.ContainsFunc(v.names, func(n serverName) bool { return n.regex }) {
		for _, r := range merge(a.names(&socket{vhosts: []*vhost{v}})) {
			h.Names = append(h.Names, r.names...)
		}
	}
	if size := value(v.scope, "large_client_header_buffers", headerBuffers{}).size; size != 8<<10 {
		h.MaxLine = size
	}
	if first := v.names[0]; !first.regex {
		h.ServerName = strings.TrimPrefix(first.text, ".")
	}
	if value(v.scope, "ssl_verify_client", "") == "optional_no_ca" && a.usesAny([]string{"ssl_client_verify"}) {
		h.ClientCAs = a.clientAuthorities(v.scope)
	}
	if _, err := a.settings(v.scope, &h.Location); err != nil {
		return nil, err
	}
	if err := a.buildInner(v.scope, &h.Location); err != nil {
		return nil, err
	}
	for _, l := range h.Locations {
		if l.Path == "/" && plainPrefix(l) { // nothing is left for the server itself
			h.HandlersRaw = nil
		}
	}
	return handler("nginx_server", h), nil
}
