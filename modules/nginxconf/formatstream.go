// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/l4stream"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// stream prints the stream app and its logs. What it does is exactly what the
// adapter's JSON does, for it is printed of that.
func (p *printer) stream() {
	app, err := p.a.streamApp()
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.a.logs)) {
		if l := p.a.logs[name]; slices.ContainsFunc(l.Include, func(s string) bool { return strings.HasPrefix(s, "stream.") }) {
			p.log(name, l)
		}
	}
	p.block("stream", func() {
		for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
			s := app.Servers[name]
			p.block("server "+strings.Join(s.Listen, " "), func() { p.streamServer(s) })
		}
	})
}

// log prints a log in the global options.
func (p *printer) log(name string, l *caddy.CustomLog) {
	at := p.a.streamScope.at
	var output, format struct {
		Output, Filename, Mode string
		Level, Buffer          int
		Flush                  caddy.Duration
		LogFormat              string `json:"log_format"`
		Escape                 string
	}
	if json.Unmarshal(l.WriterRaw, &output) != nil || json.Unmarshal(l.EncoderRaw, &format) != nil {
		p.cannot(at, "access_log")
		return
	}
	p.block("log "+name, func() {
		switch output.Output {
		case "file":
			p.block("output file "+p.token(at, output.Filename), func() {
				p.line("mode %s", output.Mode)
				p.line("roll_disabled")
			})
		case "nginx_gzip":
			p.optional("output nginx_gzip "+p.token(at, output.Filename), func() {
				p.count("level", output.Level)
				p.count("buffer", output.Buffer)
				p.span("flush", output.Flush)
			})
		default:
			p.line("output %s", output.Output)
		}
		p.optional("format nginx "+p.token(at, format.LogFormat), func() { p.wordLine("escape", format.Escape) })
		p.line("include %s", strings.Join(l.Include, " "))
	})
}

// streamServer prints what stands in a server of stream.
func (p *printer) streamServer(s *l4stream.Server) {
	at := p.a.streamScope.at
	if len(s.ServerName) > 0 {
		p.line("server_name %s", p.tokens(at, s.ServerName))
	}
	if s.PrereadBufferSize > 0 {
		p.line("preread_buffer_size %d", s.PrereadBufferSize)
	}
	p.span("preread_timeout", s.PrereadTimeout)
	for _, raw := range s.HandlersRaw {
		var h struct{ Handler string }
		if err := json.Unmarshal(raw, &h); err != nil {
			p.errs = append(p.errs, err)
			continue
		}
		f := p.streamPrinters()[h.Handler]
		if f == nil {
			p.cannot(at, h.Handler)
		} else if err := f(raw); err != nil {
			p.errs = append(p.errs, err)
		}
	}
}

// printed makes a printer of a handler out of one of its settings.
func printed[T any](p *printer, f func(p *printer, at *dir, h *T)) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		h := new(T)
		if err := json.Unmarshal(raw, h); err != nil {
			return err
		}
		f(p, p.a.streamScope.at, h)
		return nil
	}
}

// streamPrinters print the handlers that the adapter makes.
func (p *printer) streamPrinters() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"return": printed(p, func(p *printer, at *dir, h *l4stream.Return) { p.line("return %s", p.token(at, h.Text)) }),
		"pass":   printed(p, func(p *printer, at *dir, h *l4stream.Pass) { p.line("pass %s", p.token(at, h.To)) }),
		"set": printed(p, func(p *printer, at *dir, h *l4stream.Set) {
			p.line("set %s %s", h.Name, p.token(at, h.Value))
		}),
		"ssl_preread": func(json.RawMessage) error { p.line("ssl_preread"); return nil },
		"realip":      printed(p, func(p *printer, at *dir, h *l4stream.RealIP) { p.line("realip %s", p.tokens(at, h.From)) }),
		"proxy_protocol": printed(p, func(p *printer, _ *dir, h *l4stream.ProxyProtocol) {
			head := "proxy_protocol"
			if h.Require {
				head += " require"
			}
			p.optional(head, func() { p.span("timeout", h.Timeout) })
		}),
		"access": printed(p, func(p *printer, at *dir, h *l4stream.Access) {
			for _, r := range h.Rules {
				word := "deny"
				if r.Allow {
					word = "allow"
				}
				p.line("%s %s", word, p.token(at, r.Match))
			}
		}),
		"limit_conn": printed(p, func(p *printer, at *dir, h *l4stream.LimitConn) {
			p.optional(fmt.Sprintf("limit_conn %s %d", p.token(at, h.Key), h.Limit), func() {
				p.wordLine("zone", h.Zone)
				p.flag("dry_run", h.DryRun)
			})
		}),
		"map": printed(p, func(p *printer, at *dir, h *l4stream.Map) {
			p.block(fmt.Sprintf("map %s %s", p.token(at, h.Source), h.Name), func() {
				p.flag("hostnames", h.Hostnames)
				for _, e := range h.Entries {
					p.line("%s %s", p.token(at, e.Pattern), p.token(at, e.Value))
					if e.Pattern == "hostnames" { // which it would be taken for
						p.cannot(at, "a map of \"hostnames\"")
					}
				}
			})
		}),
		"geo": printed(p, func(p *printer, at *dir, h *l4stream.Geo) {
			head := "geo " + h.Name
			if h.Source != "" {
				head = fmt.Sprintf("geo %s %s", p.token(at, h.Source), h.Name)
			}
			p.block(head, func() {
				p.flag("ranges", h.Ranges)
				for _, e := range h.Entries {
					if e.Delete {
						p.line("delete %s", e.Network)
					} else {
						p.line("%s %s", e.Network, p.token(at, e.Value))
					}
				}
			})
		}),
		"split_clients": printed(p, func(p *printer, at *dir, h *l4stream.SplitClients) {
			p.block(fmt.Sprintf("split_clients %s %s", p.token(at, h.Source), h.Name), func() {
				for _, part := range h.Parts {
					p.line("%s %s", part.Share, p.token(at, part.Value))
				}
			})
		}),
		"access_log": printed(p, func(p *printer, at *dir, h *l4stream.AccessLog) {
			p.block("access_log", func() {
				p.wordLine("logger", h.Logger)
				if h.If != "" {
					p.line("if %s", p.token(at, h.If))
				}
				for _, name := range slices.Sorted(maps.Keys(h.Fields)) {
					p.line("field %s %s", name, p.token(at, h.Fields[name]))
				}
			})
		}),
		"tls":        printed(p, (*printer).streamTLS),
		"proxy_pass": printed(p, (*printer).streamProxy),
	}
}

func (p *printer) streamTLS(at *dir, t *l4stream.TLS) {
	p.block("tls", func() {
		for _, c := range t.Certificates {
			p.words("certificate", p.token(at, c.Certificate), p.token(at, c.Key), p.tokenIf(at, c.PasswordFile))
		}
		p.span("handshake_timeout", t.HandshakeTimeout)
		for _, c := range t.ConnectionPolicies {
			p.block("connection_policy", func() {
				p.flag("drop", c.Drop)
				if len(c.ALPN) > 0 {
					p.line("alpn %s", p.tokens(at, c.ALPN))
				}
				p.protocols(c)
				p.clientAuth(at, c.ClientAuthentication)
			})
		}
	})
}

// protocols prints the versions and ciphers of TLS of a policy; the lowest by
// default is 1.2.
func (p *printer) protocols(c *caddytls.ConnectionPolicy) {
	least := c.ProtocolMin
	if least == "" && c.ProtocolMax != "" {
		least = "tls1.2"
	}
	if least != "" {
		p.words("protocols", least, c.ProtocolMax)
	}
	if len(c.CipherSuites) > 0 {
		p.line("ciphers %s", strings.Join(c.CipherSuites, " "))
	}
}

// clientAuth prints how certificates of clients are verified.
func (p *printer) clientAuth(at *dir, c *caddytls.ClientAuthentication) {
	if c == nil {
		return
	}
	p.block("client_auth", func() {
		p.line("mode %s", c.Mode)
		p.pool(at, "trust_pool file", c.CARaw)
		for _, raw := range c.VerifiersRaw {
			var v nginxhttp.Revocation
			if err := json.Unmarshal(raw, &v); err != nil {
				p.errs = append(p.errs, err)
			}
			p.line("verifier nginx_crl %s", p.tokens(at, v.Files))
		}
	})
}

// pool prints files of authorities.
func (p *printer) pool(at *dir, head string, raw json.RawMessage) {
	var pool struct {
		Files []string `json:"pem_files"`
	}
	if raw != nil && json.Unmarshal(raw, &pool) == nil {
		p.line("%s %s", head, p.tokens(at, pool.Files))
	}
}

func (p *printer) streamProxy(at *dir, h *l4stream.ProxyPass) {
	if h.BufferSize > 0 && h.BufferSize < 512 {
		p.cannot(at, "proxy_buffer_size below 512")
	}
	p.optional("proxy_pass "+p.tokens(at, h.To), func() {
		if len(h.AllowDynamic) > 0 {
			p.line("allow_dynamic %s", p.tokens(at, h.AllowDynamic))
		}
		p.span("connect_timeout", h.ConnectTimeout)
		p.span("timeout", h.Timeout)
		p.wordLine("next_upstream", h.NextUpstream)
		p.count("next_upstream_tries", h.NextUpstreamTries)
		p.span("next_upstream_timeout", h.NextUpstreamTimeout)
		p.onIf("half_close", h.HalfClose)
		for _, o := range []struct{ name, value string }{
			{"upload_rate", h.UploadRate}, {"download_rate", h.DownloadRate}, {"bind", h.Bind}, {"proxy_protocol", h.ProxyProtocol}, {"nodelay", h.NoDelay},
		} {
			if o.value != "" {
				p.line("%s %s", o.name, p.token(at, o.value))
			}
		}
		p.count("buffer_size", int(h.BufferSize))
		p.onIf("socket_keepalive", h.SocketKeepalive)
		p.count("proxy_requests", h.ProxyRequests)
		if h.ProxyResponses != nil {
			p.line("proxy_responses %d", *h.ProxyResponses)
		}
		if h.SSL != nil {
			p.streamProxyTLS(at, h.SSL)
		}
	})
}

func (p *printer) streamProxyTLS(at *dir, s *l4stream.UpstreamTLS) {
	p.line("ssl")
	if s.ServerName != "" {
		p.line("ssl_name %s", p.token(at, s.ServerName))
	}
	p.flag("ssl_no_sni", s.NoSNI)
	if len(s.ALPN) > 0 {
		p.line("ssl_alpn %s", p.tokens(at, s.ALPN))
	}
	p.flag("ssl_insecure_skip_verify", s.InsecureSkipVerify)
	p.pool(at, "ssl_trusted_ca_certs", s.CARaw)
	if len(s.CRLFiles) > 0 {
		p.line("ssl_crl %s", p.tokens(at, s.CRLFiles))
	}
	p.serverProtocols("ssl_protocols", &s.Settings)
	p.flag("ssl_no_session_resumption", s.NoSessionResumption)
	if s.ClientCertificateFile != "" {
		p.words("ssl_certificate", p.token(at, s.ClientCertificateFile), p.token(at, s.ClientCertificateKeyFile), p.tokenIf(at, s.ClientCertificatePasswordFile))
	}
}

// optional prints a block, or its head alone if nothing stands in it.
func (p *printer) optional(head string, f func()) {
	before := p.b.Len()
	p.block(head, f)
	empty := strings.Repeat("\t", p.depth) + head + " {\n" + strings.Repeat("\t", p.depth) + "}\n"
	if p.b.String()[before:] == empty {
		text := p.b.String()[:before]
		p.b.Reset()
		p.b.WriteString(text)
		p.line("%s", head)
	}
}

func (p *printer) flag(name string, on bool) {
	if on {
		p.line("%s", name)
	}
}

func (p *printer) onIf(name string, on bool) {
	if on {
		p.line("%s on", name)
	}
}

func (p *printer) wordLine(name, word string) {
	if word != "" {
		p.line("%s %s", name, word)
	}
}

func (p *printer) count(name string, n int) {
	if n != 0 {
		p.line("%s %s", name, strconv.Itoa(n))
	}
}

func (p *printer) span(name string, d caddy.Duration) {
	if d != 0 {
		p.line("%s %s", name, time.Duration(d))
	}
}

// token writes a text as one token of a Caddyfile.
func (p *printer) token(at *dir, text string) string {
	switch {
	case strings.Contains(text, "{$"), text == "{", text == "}", strings.ContainsAny(text, "\r\x00"):
		p.cannot(at, strconv.Quote(text))
		return text
	case text == "":
		return `""`
	case !strings.ContainsAny(text, " \t\n\"`\\#") && !strings.HasPrefix(text, "<<") && !strings.HasSuffix(text, "{"):
		return text
	case !strings.Contains(text, "`"):
		return "`" + text + "`"
	case !strings.ContainsAny(text, "\"\\"):
		return `"` + text + `"`
	}
	p.cannot(at, strconv.Quote(text))
	return text
}

func (p *printer) tokens(at *dir, texts []string) string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = p.token(at, text)
	}
	return strings.Join(out, " ")
}

// tokenIf is empty for an empty text.
func (p *printer) tokenIf(at *dir, text string) string {
	if text == "" {
		return ""
	}
	return p.token(at, text)
}
