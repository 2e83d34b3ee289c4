// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"net"
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

// proxyPass is the argument of proxy_pass.
type proxyPass struct {
	at     *dir
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
	values, known := a.valuesOf(strings.ToLower(name), 0)
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

// valuesOf lists what a variable may be, if that is known.
func (a *adapter) valuesOf(name string, depth int) (values []string, known bool) {
	from, ok := a.possible[name]
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
		more, ok := a.valuesOf(strings.ToLower(inner), depth+1)
		if !ok {
			return nil, false
		}
		values = append(values, more...)
	}
	return values, true
}

// reverseProxy makes the handler for one group.
func (a *adapter) reverseProxy(s *scope, l *nginxhttp.Location, p *proxyPass, t *target) (json.RawMessage, error) {
	req, err := a.request(s, l, p, t)
	if err != nil {
		return nil, err
	}
	next := &nextupstream.Transport{
		Conditions: value(s, "proxy_next_upstream", []string(nil)),
		Tries:      value(s, "proxy_next_upstream_tries", 0),
		Timeout:    duration(s, "proxy_next_upstream_timeout"),
	}
	if !value(s, "proxy_request_buffering", true) {
		next.RequestBuffering = "off"
	}
	if size := value(s, "client_body_buffer_size", int64(0)); size != 0 {
		next.RequestBufferSize = size
	}
	next.TransportRaw = caddyconfig.JSONModuleObject(req, "protocol", "nginx_request", nil)
	h := &reverseproxy.Handler{
		TransportRaw: caddyconfig.JSONModuleObject(next, "protocol", "next_upstream", nil),
		LoadBalancing: &reverseproxy.LoadBalancing{
			SelectionPolicyRaw: caddyconfig.JSONModuleObject(map[string]string{"group": t.group.id}, "policy", "upstream", nil),
		},
	}
	if !value(s, "proxy_buffering", true) {
		h.FlushInterval = -1
	}
	if value(s, "proxy_intercept_errors", false) {
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
	return []caddyhttp.ResponseHandler{{
		Match: &caddyhttp.ResponseMatcher{StatusCode: codes},
		Routes: caddyhttp.RouteList{{HandlersRaw: []json.RawMessage{
			handler("error", caddyhttp.StaticError{StatusCode: "{http.reverse_proxy.status_code}"}),
		}}},
	}}
}

// request makes the transport that says what is sent.
func (a *adapter) request(s *scope, l *nginxhttp.Location, p *proxyPass, t *target) (*nginxhttp.Request, error) {
	local := map[string]string{"proxy_host": literal(t.host), "proxy_port": t.port}
	r := &nginxhttp.Request{Host: literal(t.host)}
	if p.hasURI {
		r.URI = template(p.uri, local)
		if !hasVariables(p.host + p.uri) {
			r.Replaces = l.Path
		}
	}
	connection := false
	for _, h := range list[pair](s, "proxy_set_header") {
		switch {
		case strings.EqualFold(h.name, "Host"):
			r.Host = template(h.value, local)
			continue
		case strings.EqualFold(h.name, "Connection"):
			connection = true
			if h.value == "" {
				continue
			}
		}
		r.SetHeaders = append(r.SetHeaders, nginxhttp.Field{Name: h.name, Value: template(h.value, local)})
	}
	r.DropHeaders = !value(s, "proxy_pass_request_headers", true)
	r.Method = template(value(s, "proxy_method", ""), nil)
	r.HideHeaders = list[string](s, "proxy_hide_header")
	r.PassHeaders = list[string](s, "proxy_pass_header")
	r.IgnoreHeaders = value(s, "proxy_ignore_headers", []string(nil))
	a.transport(s, r, t, connection)
	var err error
	if r.Redirects, err = a.redirects(s, l, p); err != nil {
		return nil, err
	}
	return r, a.proxyTLS(s, r, p, t)
}

// transport sets what concerns connections.
func (a *adapter) transport(s *scope, r *nginxhttp.Request, t *target, connection bool) {
	k := &r.Transport
	k.ConnectTimeout = duration(s, "proxy_connect_timeout")
	k.SendTimeout = duration(s, "proxy_send_timeout")
	k.ReadTimeout = duration(s, "proxy_read_timeout")
	k.BindAddress = value(s, "proxy_bind", "")
	def := "1.1"
	if !a.version.atLeast(1, 29, 7) {
		def = "1.0"
	}
	if v := value(s, "proxy_http_version", def); v != "1.1" {
		k.HTTPVersion = v
	}
	if size := value(s, "proxy_buffer_size", int64(0)); size >= 1<<10 {
		k.ResponseHeaderLimit = int(min(size, 16<<20))
	}
	// older versions ask the server to close, unless told otherwise
	kept := t.group.config.Keepalive
	if !connection && !a.version.atLeast(1, 29, 7) && k.HTTPVersion == "" &&
		kept != nil && kept.Connections != nil && *kept.Connections > 0 {
		none := 0
		k.Keepalive = &none
	}
}

// redirects translates proxy_redirect and its default.
func (a *adapter) redirects(s *scope, l *nginxhttp.Location, p *proxyPass) ([]*nginxhttp.Redirect, error) {
	rules := list[[]string](s, "proxy_redirect")
	if rules == nil {
		if hasVariables(p.host + p.uri) {
			return nil, nil
		}
		rules = [][]string{{"default"}}
	}
	var out []*nginxhttp.Redirect
	for _, r := range rules {
		switch {
		case len(r) == 2:
			out = append(out, &nginxhttp.Redirect{From: redirectFrom(r[0]), To: template(r[1], nil)})
		case r[0] == "off":
			return nil, nil
		case hasVariables(p.host + p.uri):
			return nil, p.at.errorf("proxy_redirect default cannot be used with a proxy_pass that has variables")
		default:
			scheme := "http://"
			if p.https {
				scheme = "https://"
			}
			from, to := scheme+p.host+p.uri, l.Path
			if !p.hasURI {
				from, to = from+"/", "/"
			}
			out = append(out, &nginxhttp.Redirect{From: literal(from), To: literal(to)})
		}
	}
	return out, nil
}

func redirectFrom(s string) string {
	if strings.HasPrefix(s, "~") {
		return s
	}
	return template(s, nil)
}

func readRedirect(a *adapter, d *dir) (any, error) {
	switch {
	case len(d.args) == 1 && (d.args[0] == "off" || d.args[0] == "default"):
	case len(d.args) == 1:
		return nil, d.errorf("invalid parameter %q: expected off, default or two texts", d.args[0])
	case strings.HasPrefix(d.args[0], "~"):
		if err := a.regex(d, strings.TrimPrefix(d.args[0][1:], "*")); err != nil {
			return nil, err
		}
		a.uses(d, d.args[1])
	default:
		a.uses(d, d.args[0])
		a.uses(d, d.args[1])
	}
	return d.args, nil
}

// proxyTLS translates proxy_ssl_*.
func (a *adapter) proxyTLS(s *scope, r *nginxhttp.Request, p *proxyPass, t *target) error {
	if !p.https {
		return nil
	}
	c := &reverseproxy.TLSConfig{}
	name := value(s, "proxy_ssl_name", "")
	if hasVariables(name) {
		return p.at.errorf("proxy_ssl_name with variables is not translated: write the name")
	}
	if name == "" {
		name, _, _ = hostPort(t.host, 443)
	}
	verify := value(s, "proxy_ssl_verify", false)
	if value(s, "proxy_ssl_server_name", false) || verify {
		c.ServerName = name
	}
	if verify {
		ca := value(s, "proxy_ssl_trusted_certificate", "")
		if ca == "" {
			return p.at.errorf("no proxy_ssl_trusted_certificate for proxy_ssl_verify")
		}
		c.CARaw = caddyconfig.JSONModuleObject(map[string][]string{"pem_files": {a.path(ca)}}, "provider", "file", nil)
	} else {
		c.InsecureSkipVerify = true
	}
	if cert := value(s, "proxy_ssl_certificate", ""); cert != "" {
		if hasVariables(cert) {
			return p.at.errorf("proxy_ssl_certificate with variables is not translated: write the file")
		}
		c.ClientCertificateFile, c.ClientCertificateKeyFile = a.path(cert), a.path(value(s, "proxy_ssl_certificate_key", ""))
	}
	r.Transport.TLS = c
	return nil
}

func readSessionReuse(a *adapter, d *dir) (any, error) {
	v, err := readFlag(a, d)
	if err == nil && v == false {
		a.warn(d, "sessions are reused where the server allows it")
	}
	return v, err
}

func readClientProtocols(a *adapter, d *dir) (any, error) {
	has := map[string]bool{}
	for _, w := range d.args {
		has[w] = true
	}
	if !has["TLSv1.2"] || !has["TLSv1.3"] {
		return nil, d.errorf("TLS 1.2 and 1.3 are offered to servers, nothing else can be chosen: take it out")
	}
	if len(has) > 2 {
		a.warn(d, "only TLS 1.2 and 1.3 are offered")
	}
	return d.args, nil
}

var conditionNames = map[string]bool{
	"error": true, "timeout": true, "invalid_header": true, "http_500": true, "http_502": true, "http_503": true,
	"http_504": true, "http_403": true, "http_404": true, "http_429": true, "non_idempotent": true, "off": true,
}

func readConditions(a *adapter, d *dir) (any, error) {
	for _, w := range d.args {
		switch {
		case w == "updating":
			return nil, d.errorf("updating is not translated: there is no cache")
		case !conditionNames[w]:
			return nil, d.errorf("invalid value %q", w)
		case w == "off":
			return []string{"off"}, nil
		}
	}
	return d.args, nil
}

func readBind(a *adapter, d *dir) (any, error) {
	switch {
	case len(d.args) == 2:
		return nil, d.errorf("the parameter %q is not translated", d.args[1])
	case d.args[0] == "off":
		return "", nil
	case hasVariables(d.args[0]):
		return nil, d.errorf("an address with variables is not translated: write the address")
	}
	if net.ParseIP(strings.Trim(d.args[0], "[]")) == nil {
		if host, _, err := hostPort(d.args[0], 1); err != nil || net.ParseIP(host) == nil {
			return nil, d.errorf("invalid address %q", d.args[0])
		}
	}
	return d.args[0], nil
}
