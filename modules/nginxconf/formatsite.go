// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// printable are the directives of servers and locations that the printer knows.
var printable = func() map[string]bool {
	known := map[string]bool{}
	for name := range strings.FieldsSeq(`proxy_pass proxy_connect_timeout proxy_send_timeout proxy_read_timeout
		proxy_next_upstream proxy_next_upstream_tries proxy_next_upstream_timeout
		proxy_buffering proxy_request_buffering proxy_http_version proxy_set_header
		proxy_ssl_name proxy_ssl_server_name proxy_ssl_verify proxy_ssl_trusted_certificate proxy_ssl_crl
		proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_password_file proxy_ssl_session_reuse proxy_ssl_protocols
		ssl_certificate ssl_certificate_key ssl_protocols ssl_ciphers ssl_verify_client ssl_client_certificate ssl_trusted_certificate ssl_crl http2
		server_name location vhost client_max_body_size
		resolver resolver_timeout`) { // which groups have
		known[name] = true
	}
	return known
}()

// known reports what stands in a scope and cannot be printed.
func (p *printer) known(s *scope, at *dir) {
	var unknown []string
	for name := range s.values {
		if !printable[name] {
			unknown = append(unknown, name)
		}
	}
	for name := range s.lists {
		off := name == "access_log" && !slices.ContainsFunc(list[*accessLog](s, name), func(l *accessLog) bool { return l.path != "" })
		if !printable[name] && !off { // logs are off in a Caddyfile
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		p.cannot(at, name)
	}
}

// socket prints what concerns all sites of an address.
func (p *printer) socket(s *socket) {
	if len(s.vhosts) > 1 {
		p.names(s)
	}
	if !s.ssl {
		return
	}
	p.block("servers "+s.address, func() {
		p.words("protocols", "h1", wordIf("h2", s.http2))
		p.line("strict_sni_host insecure_off") // nginx's default server takes any name
	})
}

// names looks for what Caddy chooses sites by otherwise than nginx does.
func (p *printer) names(s *socket) {
	wildcards := false
	for _, v := range s.vhosts {
		wildcards = wildcards || v != s.def && slices.ContainsFunc(v.names, func(n serverName) bool { return strings.Contains(n.text, "*") })
	}
	for _, n := range s.def.names {
		if wildcards && n.text != "" && n.text != "_" { // it is printed without its names
			p.cannot(s.def.at, fmt.Sprintf("the name %q of the default server beside wildcards", n.text))
		}
	}
}

// defaultOf reports whether v takes what no other server of an address does.
func (p *printer) defaultOf(address string, v *vhost) bool {
	sockets, _ := p.a.sockets()
	return slices.ContainsFunc(sockets, func(s *socket) bool { return s.address == address && s.def == v })
}

// site prints a server block.
func (p *printer) site(v *vhost) {
	p.known(v.scope, v.at)
	p.known(p.a.httpScope, v.at)
	var addresses []string
	bind, secure := "", false
	for i, l := range v.listens {
		colon := strings.LastIndexByte(l.address, ':')
		host := ""
		if colon >= 0 {
			host = l.address[:colon]
		}
		if l.proxy || l.port == "" || i > 0 && (bind != host || secure != l.ssl) {
			p.cannot(l.at, "this listen")
			return
		}
		bind, secure = host, l.ssl
		addresses = append(addresses, p.addresses(v, l)...)
	}
	p.block(strings.Join(addresses, ", "), func() {
		if bind != "" {
			p.line("bind %s", bind)
		}
		if secure {
			p.siteTLS(v)
		}
		if len(v.scope.steps) > 0 {
			p.rules(v.scope, v.at, v)
			return
		}
		if !slices.ContainsFunc(v.scope.inner, func(in *scope) bool { return in.values["location"].(*nginxhttp.Location).Path == "/" }) {
			p.cannot(v.at, "a server without location /")
		}
		for _, in := range v.scope.inner {
			p.location(in, v)
		}
	})
}

// addresses are those of a site for one listen: the default server's are for
// all names.
func (p *printer) addresses(v *vhost, l *listen) []string {
	scheme := "http://"
	if l.ssl {
		scheme = "https://"
	}
	if p.defaultOf(l.address, v) {
		return []string{scheme + ":" + l.port}
	}
	var out []string
	for _, n := range v.names {
		switch {
		case n.regex || strings.HasSuffix(n.text, ".*") || strings.HasPrefix(n.text, "."):
			p.cannot(v.at, fmt.Sprintf("server_name %q", n.text))
		case n.text == "" || n.text == "_":
		case strings.HasPrefix(n.text, "*."): // there it stands for one label
			p.cannot(v.at, fmt.Sprintf("server_name %q", n.text))
		default:
			out = append(out, scheme+n.text+":"+l.port)
		}
	}
	if out == nil {
		p.cannot(v.at, "a server that no name leads to")
	}
	return out
}

// siteTLS prints the certificate of a site, and what clients have to show.
func (p *printer) siteTLS(v *vhost) {
	certs, keys := list[string](v.scope, "ssl_certificate"), list[string](v.scope, "ssl_certificate_key")
	if len(certs) != 1 || len(keys) != 1 {
		p.cannot(v.at, "TLS with several certificates, or without one,")
		return
	}
	c := new(caddytls.ConnectionPolicy)
	if err := p.a.tlsOptions(v.scope, v.at, c); err != nil {
		p.errs = append(p.errs, err)
		return
	}
	p.optional(fmt.Sprintf("tls %s %s", p.token(v.at, p.a.path(certs[0])), p.token(v.at, p.a.path(keys[0]))), func() {
		p.protocols(c)
		p.clientAuth(v.at, c.ClientAuthentication)
	})
}

func (p *printer) location(s *scope, v *vhost) {
	p.known(s, s.at)
	l := s.values["location"].(*nginxhttp.Location)
	matcher := l.Path + "*"
	switch {
	case len(s.inner) > 0, l.Modifier == "~", l.Modifier == "~*", l.Modifier == "@", strings.ContainsAny(l.Path, "*% "):
		p.cannot(s.at, "this location")
		return
	case l.Modifier == "=":
		matcher = l.Path
	}
	head := "handle " + p.token(s.at, matcher)
	if matcher == "/*" {
		head = "handle"
	}
	_, passes := own[*proxyPass](s, "proxy_pass")
	if bare := strings.TrimSuffix(l.Path, "/"); passes && bare != "" && bare != l.Path && l.Modifier != "=" &&
		!slices.ContainsFunc(v.scope.inner, func(in *scope) bool { return in.values["location"].(*nginxhttp.Location).Path == bare }) {
		p.line("redir %s %s 301", p.token(s.at, bare), p.absolute(s.at, v, p.token(s.at, l.Path))+"{http.request.uri.prefixed_query}")
	}
	p.block(head, func() {
		if p.rules(s, s.at, v) {
			return
		}
		pass, ok := own[*proxyPass](s, "proxy_pass")
		if !ok {
			p.cannot(s.at, "a location without proxy_pass")
			return
		}
		p.proxy(s, pass)
	})
}

// always are regular expressions that every path fits.
var always = []string{"^", ".*", "^.*", "^.*$", "^/", "^/.*", "^/.*$", "(.*)", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$"}

// rules prints the rules of a block, and reports whether they answer requests.
func (p *printer) rules(s *scope, at *dir, v *vhost) bool {
	if len(s.steps) == 0 {
		return false
	}
	r := s.steps[0]
	switch {
	case len(s.steps) > 1 || r.Return == 444:
	case r.Return != 0 && isRedirect(r.Return) && r.Text != nil && *r.Text != "":
		p.redirect(at, v, *r.Text, r.Return)
		return true
	case r.Return != 0 && !isRedirect(r.Return):
		p.answer(at, r)
		return true
	case r.Regex == "" || !slices.Contains(always, r.Regex) || strings.Contains(r.Replacement, "?"):
	case r.Flag == "redirect" || r.Flag == "permanent":
		to, status := r.Replacement, 302
		if r.Flag == "permanent" {
			status = 301
		}
		if !r.DropArgs {
			to += "{http.request.uri.prefixed_query}"
		}
		p.redirect(at, v, to, status)
		return true
	case r.Flag == "break" && s.kind == inLocation:
		to := p.value(at, r.Replacement)
		if r.DropArgs {
			to += "?"
		}
		p.line("rewrite * %s", to)
		return false
	}
	p.cannot(at, "what it does with rewrite rules")
	return true
}

// redirect prints a redirect.
func (p *printer) redirect(at *dir, v *vhost, to string, status int) {
	to = p.value(at, to)
	if strings.HasPrefix(to, "/") {
		to = p.absolute(at, v, to)
	}
	p.line("redir %s %d", to, status)
}

// absolute makes an address of a path as nginx does: with the port that the
// server listens on.
func (p *printer) absolute(at *dir, v *vhost, path string) string {
	port, secure := v.listens[0].port, v.listens[0].ssl
	for _, l := range v.listens {
		if l.port != port {
			p.cannot(at, "a redirect to a path with several ports")
		}
	}
	if def := map[bool]string{false: "80", true: "443"}[secure]; port == def {
		return "{http.request.scheme}://{http.request.host}" + path
	}
	return "{http.request.scheme}://{http.request.host}:" + port + path
}

// answer prints a return of a status and a text.
func (p *printer) answer(at *dir, r *step) {
	if r.Text == nil || *r.Text == "" {
		p.line("respond %d", r.Return)
		return
	}
	if strings.ContainsAny(*r.Text, "{}\\`\"") {
		p.cannot(at, "a text with variables, quotes or braces")
		return
	}
	p.line("header Content-Type text/plain")
	p.line("respond %s %d", strconv.Quote(*r.Text), r.Return)
}

func isRedirect(status int) bool { return status >= 301 && status <= 308 }
