// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"fmt"
	"strings"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
)

// headerPlaceholders are the variables that proxy_set_header may have here.
var headerPlaceholders = map[string]string{
	"$host": "{http.request.host}", "$remote_addr": "{http.request.remote.host}", "$scheme": "{http.request.scheme}",
	"$request_uri": "{http.request.orig_uri}", "$request_method": "{http.request.method}", "$args": "{http.request.uri.query}",
}

func (p *printer) proxy(s *scope, pass *proxyPass) {
	if pass.hasURI || hasVariables(pass.host) {
		p.cannot(pass.at, "a path or a variable in proxy_pass")
		return
	}
	t, err := p.a.target(pass, pass.host)
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	to := t.group.id
	if t.group.scope == nil {
		to = t.group.config.Servers[0].Address
	}
	if pass.https {
		to = "https://" + to
	}
	if limit := value(s, "client_max_body_size", int64(1<<20)); limit > 0 {
		p.block("request_body", func() { p.line("max_size %d", limit) })
	}
	p.block("proxy_pass "+to, func() {
		if t.group.scope == nil { // nginx keeps no connections to a mere address
			p.line("keepalive off")
		}
		if value(s, "proxy_http_version", p.a.httpVersion()) == "1.0" {
			p.line("http_version 1.0")
		}
		for _, name := range []string{"connect", "send", "read"} {
			if d := value(s, "proxy_"+name+"_timeout", zeroTime); d > 0 {
				p.line("%s_timeout %s", name, d)
			}
		}
		if c := value(s, "proxy_next_upstream", []string(nil)); c != nil {
			p.line("next_upstream %s", strings.Join(c, " "))
		}
		if n := value(s, "proxy_next_upstream_tries", 0); n > 0 {
			p.line("next_upstream_tries %d", n)
		}
		if d := value(s, "proxy_next_upstream_timeout", zeroTime); d > 0 {
			p.line("next_upstream_timeout %s", d)
		}
		if !value(s, "proxy_request_buffering", true) {
			p.line("request_buffering off")
		}
		if !value(s, "proxy_buffering", true) {
			p.line("flush_interval -1")
		}
		if pass.https {
			p.proxyTLS(s, pass, t)
		}
		p.headers(s, pass, t)
	})
}

// proxyTLS prints TLS to the servers.
func (p *printer) proxyTLS(s *scope, pass *proxyPass, t *target) {
	c, err := p.a.proxyTLS(s, pass, t)
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	at := pass.at
	if c.ServerName != "" {
		p.line("tls_server_name %s", p.value(at, c.ServerName))
	}
	p.flag("tls_insecure_skip_verify", c.InsecureSkipVerify)
	p.pool(at, "tls_trust_pool file", c.CARaw)
	if len(c.CRLFiles) > 0 {
		p.line("tls_crl %s", p.tokens(at, c.CRLFiles))
	}
	p.serverProtocols("tls_protocols", c)
	p.flag("tls_no_session_resumption", c.NoSessionResumption)
	if c.ClientCertificateFile != "" {
		p.words("tls_client_auth", p.token(at, c.ClientCertificateFile), p.token(at, c.ClientCertificateKeyFile), p.tokenIf(at, c.ClientCertificatePasswordFile))
	}
}

// serverProtocols prints the versions of TLS to servers.
func (p *printer) serverProtocols(option string, s *clienttls.Settings) {
	switch {
	case s.ProtocolMin != "":
		p.words(option, s.ProtocolMin, s.ProtocolMax)
	case s.ProtocolMax != "":
		p.line("%s tls1.2 %s", option, s.ProtocolMax)
	}
}

// headers prints proxy_set_header.
func (p *printer) headers(s *scope, pass *proxyPass, t *target) {
	host := t.host
	for _, h := range list[pair](s, "proxy_set_header") {
		switch name := strings.ToLower(h.name); {
		case name == "host" && h.value == "$http_host":
			host = ""
			if pass.https { // where Caddy's default is the server's
				host = "{http.request.hostport}"
			}
		case name == "host":
			host = p.value(pass.at, template(h.value, map[string]string{"proxy_host": literal(t.host), "proxy_port": t.port}))
		case name == "connection" || name == "upgrade" || name == "x-forwarded-for" && h.value == "$proxy_add_x_forwarded_for" ||
			name == "x-forwarded-proto" && h.value == "$scheme" || name == "x-forwarded-host" && h.value == "$host":
			// Caddy does that itself
		case h.value == "":
			p.line("header_up -%s", h.name)
		case headerPlaceholders[h.value] != "":
			p.line("header_up %s %s", h.name, headerPlaceholders[h.value])
		case hasVariables(h.value) || strings.ContainsAny(h.value, "{}\"\\` "):
			p.cannot(pass.at, fmt.Sprintf("proxy_set_header %s %q", h.name, h.value))
		default:
			p.line("header_up %s %s", h.name, h.value)
		}
	}
	if host != "" {
		p.line("header_up Host %s", host)
	}
}
