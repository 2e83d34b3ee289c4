// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/modules/nextupstream"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// proxyPass is the argument of proxy_pass or grpc_pass.
type proxyPass struct {
	at     *dir
	grpc   bool
	https  bool
	host   string // with the port as written, or unix:/path; may have variables
	uri    string // from the first slash or question mark on
	hasURI bool
}

func readProxyPass(a *adapter, d *dir) (any, error) {
	p := &proxyPass{at: d}
	a.uses(d, d.args[0])
	scheme, rest, ok := strings.Cut(d.args[0], "://")
	switch strings.ToLower(scheme) {
	case "http":
	case "https":
		p.https = true
	default:
		ok = false
	}
	if !ok {
		if hasVariables(d.args[0]) {
			return nil, d.errorf("a variable that holds the scheme is not translated: write http:// or https:// in front of the variable")
		}
		return nil, d.errorf("invalid URL prefix in %q: expected http:// or https://", d.args[0])
	}
	if path, unix := strings.CutPrefix(rest, "unix:"); unix {
		p.host, p.uri, p.hasURI = "unix:"+path, "", false
		if path, uri, cut := strings.Cut(path, ":"); cut {
			p.host, p.uri, p.hasURI = "unix:"+path, uri, uri != ""
		}
		return p, nil
	}
	p.host = rest
	if i := hostEnd(rest); i >= 0 {
		p.host, p.uri, p.hasURI = rest[:i], rest[i:], true
	}
	if p.host == "" {
		return nil, d.errorf("no host in %q", d.args[0])
	}
	return p, nil
}

// readGRPCPass reads grpc_pass, which has no path and needs no scheme.
func readGRPCPass(a *adapter, d *dir) (any, error) {
	p := &proxyPass{at: d, grpc: true, host: d.args[0]}
	a.uses(d, p.host)
	if scheme, rest, ok := strings.Cut(p.host, "://"); ok {
		if scheme = strings.ToLower(scheme); scheme != "grpc" && scheme != "grpcs" {
			return nil, d.errorf("invalid URL prefix in %q: expected grpc:// or grpcs://", p.host)
		}
		p.host, p.https = rest, scheme == "grpcs"
	}
	if p.host == "" || !strings.HasPrefix(p.host, "unix:") && strings.ContainsAny(p.host, "/?") {
		return nil, d.errorf("invalid address in %q: expected a host with a port, or an upstream block, without a path", d.args[0])
	}
	return p, nil
}

// option is the name of a directive of the family of p.
func (p *proxyPass) option(name string) string {
	if p.grpc {
		return "grpc_" + name
	}
	return "proxy_" + name
}

// hostEnd finds where the host of a URL ends: at a slash or a question mark, or
// at a variable that is the whole request URI.
func hostEnd(s string) int {
	end := strings.IndexAny(s, "/?")
	for _, v := range []string{"$request_uri", "$uri", "${request_uri}", "${uri}", "$document_uri"} {
		if i := strings.Index(s, v); i > 0 && (end < 0 || i < end) {
			end = i
		}
	}
	return end
}

// target is one place that a proxy_pass may lead to.
type target struct {
	group *group
	host  string // $proxy_host
	port  string // $proxy_port
}

// proxy adds the handler of a proxy_pass.
func (a *adapter) proxy(s *scope, l *nginxhttp.Location, p *proxyPass) error {
	literalURI := hasVariables(p.host + p.uri)
	if p.hasURI && !literalURI {
		switch {
		case s.kind == inIf:
			return p.at.errorf("it cannot have a URI part inside an if block")
		case l.Modifier == "@" || strings.HasPrefix(l.Modifier, "~"):
			return p.at.errorf("it cannot have a URI part in a location given by a regular expression or a name")
		}
	}
	if strings.HasSuffix(l.Path, "/") && l.Path != "/" && plainPrefix(l) && s.kind == inLocation {
		l.AutoRedirect = true
	}
	if !hasVariables(p.host) {
		t, err := a.target(p, p.host)
		if err != nil {
			return err
		}
		h, err := a.reverseProxy(s, l, p, t)
		if err != nil {
			return err
		}
		l.HandlersRaw = append(l.HandlersRaw, h)
		return nil
	}
	return a.proxyVariable(s, l, p)
}

// target finds or makes the group for the host of a proxy_pass.
func (a *adapter) target(p *proxyPass, host string) (*target, error) {
	def := 80
	if p.https {
		def = 443
	}
	t := &target{host: host, port: strconv.Itoa(def)}
	if g := a.groups[strings.ToLower(host)]; g != nil {
		t.group = g
		return t, nil
	}
	address := ""
	if path, ok := strings.CutPrefix(host, "unix:"); ok {
		if path == "" || path[0] != '/' {
			return nil, p.at.errorf("invalid path of a unix socket %q", host)
		}
		address, t.host, t.port = "unix/"+path, "localhost", ""
	} else {
		if p.grpc && !hasPort(host) {
			return nil, p.at.errorf("no port in %q, and no upstream block of that name", host)
		}
		name, port, err := hostPort(host, def)
		if err != nil {
			return nil, p.at.errorf("%v", err)
		}
		address = net.JoinHostPort(name, strconv.Itoa(port))
		if t.port = strconv.Itoa(port); port == def {
			t.host = strings.TrimSuffix(host, ":"+t.port)
		}
	}
	if g := a.implicit[address]; g != nil {
		t.group = g
		return t, nil
	}
	name := host
	if a.groups[strings.ToLower(name)] != nil {
		name += "-implicit"
	}
	g := a.addGroup(p.at, name, map[string]*group{})
	none := 0
	g.config.Keepalive = &upstream.Keepalive{Connections: &none}
	g.config.Servers = []*upstream.Server{{Address: address}}
	a.implicit[address] = g
	t.group = g
	return t, nil
}

// proxyVariable translates a host that a variable decides: one handler for
// each group that it may name.
func (a *adapter) proxyVariable(s *scope, l *nginxhttp.Location, p *proxyPass) error {
	if !isVariable(p.host) {
		return p.at.errorf("a host that is made of several variables is not translated: use one variable of map, set or split_clients")
	}
	name, _ := variableAt(p.host)
	values, known := a.valuesOf("", strings.ToLower(name), 0)
	if !known {
		for _, g := range a.order {
			values = append(values, g.name)
		}
		if len(values) == 0 {
			return p.at.errorf("the values of %s are not known here: use a variable of map, set or split_clients, or name upstream blocks", p.host)
		}
		a.warn(p.at, "%s may name an upstream block; for anything else, addresses too, the answer is 502", p.host)
	}
	var routes caddyhttp.RouteList
	seen := map[string]bool{}
	for _, v := range values {
		if v == "" || seen[v] {
			continue
		}
		seen[v] = true
		if strings.ContainsAny(v, "/?") {
			return p.at.errorf("%s may be %q: a URL in a variable is not translated, only a host", p.host, v)
		}
		if !a.reachable(v) {
			a.warn(p.at, "%s may be %q, which is no upstream block and no address: the answer is 502, as without a resolver in nginx", p.host, v)
			continue
		}
		t, err := a.target(p, v)
		if err != nil {
			return err
		}
		if host, _, _ := hostPort(v, 80); host != "" && net.ParseIP(host) == nil && t.group.scope == nil {
			a.warn(p.at, "the name %q is looked up when the configuration is loaded, with the system's resolver", host)
		}
		h, err := a.reverseProxy(s, l, p, t)
		if err != nil {
			return err
		}
		routes = append(routes, caddyhttp.Route{
			MatcherSetsRaw: []caddy.ModuleMap{{"vars": caddyconfig.JSON(map[string][]string{template(p.host, nil): {v}}, nil)}},
			HandlersRaw:    []json.RawMessage{h},
			Terminal:       true,
		})
	}
	routes = append(routes, caddyhttp.Route{
		HandlersRaw: []json.RawMessage{handler("error", caddyhttp.StaticError{StatusCode: "502"})},
	})
	l.HandlersRaw = append(l.HandlersRaw, handler("subroute", caddyhttp.Subroute{Routes: routes}))
	return nil
}

// reachable reports whether nginx would find the host in a variable.
func (a *adapter) reachable(v string) bool {
	if a.groups[strings.ToLower(v)] != nil || strings.HasPrefix(v, "unix:") {
		return true
	}
	host, _, err := hostPort(v, 80)
	return err != nil || net.ParseIP(host) != nil || a.resolves
}

// valuesOf lists what a variable may be, if that is known; space stands before
// the names of the variables of stream.
func (a *adapter) valuesOf(space, name string, depth int) (values []string, known bool) {
	from, ok := a.possible[space+name]
	if !ok || depth > 4 {
		return nil, false
	}
	for _, v := range from {
		if !hasVariables(v) {
			values = append(values, v)
			continue
		}
		if !isVariable(v) {
			return nil, false
		}
		inner, _ := variableAt(v)
		more, ok := a.valuesOf(space, strings.ToLower(inner), depth+1)
		if !ok {
			return nil, false
		}
		values = append(values, more...)
	}
	return values, true
}

// reverseProxy makes the handler for one group.
func (a *adapter) reverseProxy(s *scope, l *nginxhttp.Location, p *proxyPass, t *target) (json.RawMessage, error) {
	next := &nextupstream.Transport{
		Conditions: value(s, p.option("next_upstream"), []string(nil)),
		Tries:      value(s, p.option("next_upstream_tries"), 0),
		Timeout:    duration(s, p.option("next_upstream_timeout")),
	}
	switch passed := value(s, "proxy_pass_request_body", true); {
	case p.grpc || passed && !value(s, "proxy_request_buffering", true):
		next.RequestBuffering = "off"
	default:
		if next.RequestBodyFiles = a.bodyFiles(s); next.RequestBodyFiles == nil || !next.RequestBodyFiles.Always {
			next.RequestBufferSize = value(s, "client_body_buffer_size", int64(0))
		}
	}
	var err error
	if next.TransportRaw, err = a.innermost(s, l, p, t); err != nil {
		return nil, err
	}
	h := &reverseproxy.Handler{
		TransportRaw: caddyconfig.JSONModuleObject(next, "protocol", "next_upstream", nil),
		LoadBalancing: &reverseproxy.LoadBalancing{
			SelectionPolicyRaw: caddyconfig.JSONModuleObject(map[string]string{"group": t.group.id}, "policy", "upstream", nil),
		},
	}
	if p.grpc || !value(s, "proxy_buffering", true) {
		h.FlushInterval = -1
	}
	if value(s, p.option("intercept_errors"), false) {
		h.HandleResponse = intercept(list[*nginxhttp.ErrorPage](s, "error_page"))
	}
	return handler("reverse_proxy", h), nil
}

// intercept makes errors of the responses that have an error page.
func intercept(pages []*nginxhttp.ErrorPage) []caddyhttp.ResponseHandler {
	var codes []int
	for _, p := range pages {
		codes = append(codes, p.Status...)
	}
	if codes == nil {
		return nil
	}
	var out []caddyhttp.ResponseHandler
	add := func(codes []int, handlers ...json.RawMessage) {
		out = append(out, caddyhttp.ResponseHandler{
			Match: &caddyhttp.ResponseMatcher{StatusCode: codes}, Routes: caddyhttp.RouteList{{HandlersRaw: handlers}},
		})
	}
	fail := handler("error", caddyhttp.StaticError{StatusCode: "{http.reverse_proxy.status_code}"})
	if i := slices.Index(codes, http.StatusUnauthorized); i >= 0 { // it says how to log in
		add(codes[i:i+1], handler("copy_response_headers", reverseproxy.CopyResponseHeadersHandler{Include: []string{"Www-Authenticate"}}), fail)
		codes = slices.DeleteFunc(slices.Clone(codes), func(c int) bool { return c == http.StatusUnauthorized })
	}
	if len(codes) > 0 {
		add(codes, fail)
	}
	return out
}
