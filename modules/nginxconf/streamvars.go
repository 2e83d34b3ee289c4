// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/l4stream"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// streamNames are the variables of a session that the stream app has.
var streamNames = func() map[string]bool {
	names := map[string]bool{}
	for n := range strings.FieldsSeq(`remote_addr remote_port binary_remote_addr realip_remote_addr realip_remote_port
		server_addr server_port server_name connection protocol status bytes_received bytes_sent session_time hostname pid msec
		time_iso8601 time_local limit_conn_status proxy_protocol_addr proxy_protocol_port proxy_protocol_server_addr
		proxy_protocol_server_port ssl_preread_server_name ssl_preread_alpn_protocols ssl_preread_protocol ssl_protocol
		ssl_cipher ssl_server_name ssl_alpn_protocol ssl_session_reused ssl_client_s_dn ssl_client_cert ssl_client_verify upstream_addr
		upstream_connect_time upstream_first_byte_time upstream_session_time upstream_bytes_sent upstream_bytes_received`) {
		names[n] = true
	}
	return names
}()

// notInStream are variables of nginx's stream that have no value here, with the
// reason.
var notInStream = map[string]string{
	"ssl_session_id": "Go does not tell it; use $ssl_session_reused",
	"ssl_ciphers":    "Go does not tell what the client offers; use $ssl_cipher",
	"ssl_curves":     "Go does not tell what the client offers; take it out",
	"ssl_sigalg":     "Go does not tell it; take it out",
}

func streamBuiltin(name string) bool {
	return streamNames[name] || name == versionVariable || strings.HasPrefix(name, "proxy_protocol_tlv_")
}

// streamTemplate turns a text of stream into one with placeholders, and notes
// its variables.
func (a *adapter) streamTemplate(d *dir, text string) string {
	if strings.Contains(text, `\$`) {
		a.errs = append(a.errs, d.errorf("a backslash before a variable is not translated in stream: take it out"))
	}
	return variables(text, func(name, _ string) string {
		name = strings.ToLower(name)
		a.streamUsed = append(a.streamUsed, use{name, d})
		switch {
		case name == versionVariable:
			return a.version.String()
		case streamBuiltin(name):
			return "{stream." + name + "}"
		}
		return "{stream.vars." + name + "}"
	})
}

// addStreamVariable registers the handler that makes a variable.
func (a *adapter) addStreamVariable(d *dir, arg, kind string, v any, name *string, values []string, check *nginxhttp.Variable) error {
	n, ok := strings.CutPrefix(arg, "$")
	if !ok || !nameOnly(n) {
		return d.errorf("invalid variable name %q: expected $name", arg)
	}
	*name = strings.ToLower(n)
	if streamBuiltin(*name) {
		return d.errorf("the variable $%s cannot be set", n)
	}
	warnings, err := check.Check()
	if err != nil {
		return d.errorf("%v", err)
	}
	for _, w := range warnings {
		a.warn(d, "%s", w)
	}
	a.known["stream."+*name] = true
	a.noteValues("stream."+*name, values)
	if a.streamVariables[*name] == nil {
		a.streamOrder = append(a.streamOrder, *name)
	}
	a.streamVariables[*name] = handler(kind, v)
	return nil
}

func (a *adapter) streamMap(_ *scope, d *dir) error {
	m, err := a.readMap(d, a.mapValue) // which is volatile always
	if err != nil {
		return err
	}
	v := &l4stream.Map{Source: a.streamTemplate(d, d.args[0]), Entries: m.Entries, Hostnames: m.Hostnames}
	return a.addStreamVariable(d, d.args[1], "map", v, &v.Name, m.values, &nginxhttp.Variable{Map: &m.Map})
}

// mapValue is the value of a map's line: captures stay as they are.
func (a *adapter) mapValue(l *dir, text string) string {
	var b strings.Builder
	for text != "" {
		i := strings.IndexByte(text, '$')
		if i < 0 {
			b.WriteString(literal(text))
			break
		}
		b.WriteString(literal(text[:i]))
		name, n := variableAt(text[i:])
		switch {
		case n == 0:
			n = 1
			b.WriteByte('$')
		case len(name) == 1 && name[0] >= '1' && name[0] <= '9' || a.known[strings.ToLower(name)] && !a.known["stream."+strings.ToLower(name)] && !streamBuiltin(name):
			b.WriteString(text[i : i+n])
		default:
			b.WriteString(a.streamTemplate(l, text[i:i+n]))
		}
		text = text[i+n:]
	}
	return b.String()
}

func (a *adapter) streamGeo(_ *scope, d *dir) error {
	g, err := a.readGeo(d)
	if err != nil {
		return err
	}
	v := &l4stream.Geo{Entries: g.Entries, Ranges: g.Ranges}
	if len(d.args) == 2 {
		v.Source = a.streamTemplate(d, d.args[0])
	}
	return a.addStreamVariable(d, d.args[len(d.args)-1], "geo", v, &v.Name, g.values, &nginxhttp.Variable{Geo: &g.Geo})
}

func (a *adapter) streamSplit(_ *scope, d *dir) error {
	s, err := a.readSplit(d)
	if err != nil {
		return err
	}
	v := &l4stream.SplitClients{Source: a.streamTemplate(d, d.args[0]), Parts: s.Parts}
	return a.addStreamVariable(d, d.args[1], "split_clients", v, &v.Name, s.values, &nginxhttp.Variable{Split: &s.Split})
}

func (a *adapter) streamFormat(_ *scope, d *dir) error {
	f, err := readFormat(d)
	if err != nil {
		return err
	}
	if _, dup := a.streamFormats[d.args[0]]; dup {
		return d.errorf("duplicate log_format %q", d.args[0])
	}
	a.streamTemplate(d, f.text)
	a.streamFormats[d.args[0]] = f
	return nil
}

func readStreamLog(a *adapter, d *dir) (any, error) {
	v, err := readAccessLogWith(a, d, func(text string) string { return a.streamTemplate(d, text) })
	if err == nil && v.path != "" && len(d.args) < 2 {
		return nil, d.errorf("log format is not specified")
	}
	return v, err
}

// streamLogs makes the log handlers of a server.
func (a *adapter) streamLogs(v *streamServer) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, l := range list[*accessLog](v.scope, "access_log") {
		if l.path == "" {
			return nil, nil
		}
		f, ok := a.streamFormats[l.format]
		if !ok {
			return nil, l.at.errorf("unknown log format %q", l.format)
		}
		h := l4stream.AccessLog{If: l.cond, Fields: map[string]string{}}
		h.Logger = a.logFor(l, f, "stream.log.access.")
		variables(f.text, func(name, _ string) string {
			name = strings.ToLower(name)
			h.Fields[name] = a.streamTemplate(l.at, "$"+name)
			return ""
		})
		out = append(out, handler("access_log", h))
	}
	return out, nil
}

// streamTLS makes the handler that terminates TLS.
func (a *adapter) streamTLS(v *streamServer) (json.RawMessage, error) {
	timeout := duration(v.scope, "ssl_handshake_timeout")
	if value(v.scope, "ssl_reject_handshake", false) {
		return handler("tls", l4stream.TLS{HandshakeTimeout: timeout, ConnectionPolicies: caddytls.ConnectionPolicies{{Drop: true}}}), nil
	}
	certs, keys := list[string](v.scope, "ssl_certificate"), list[string](v.scope, "ssl_certificate_key")
	if len(certs) == 0 || len(certs) != len(keys) {
		return nil, v.at.errorf("listen ... ssl needs ssl_certificate and ssl_certificate_key, as many of each")
	}
	t := &l4stream.TLS{HandshakeTimeout: timeout}
	for i := range certs {
		if hasVariables(certs[i] + keys[i]) {
			return nil, v.at.errorf("ssl_certificate with variables is not translated: write the file")
		}
		t.Certificates = append(t.Certificates, l4stream.CertificateFiles{Certificate: a.path(certs[i]), Key: a.path(keys[i]), PasswordFile: a.passwordFile(v.scope)})
	}
	p := &caddytls.ConnectionPolicy{ALPN: value(v.scope, "ssl_alpn", []string(nil))}
	if err := a.tlsOptions(v.scope, v.at, p); err != nil {
		return nil, err
	}
	if p.ALPN != nil || p.ProtocolMin != "" || p.ProtocolMax != "" || p.CipherSuites != nil || p.ClientAuthentication != nil {
		t.ConnectionPolicies = caddytls.ConnectionPolicies{p}
	}
	return handler("tls", t), nil
}

// newLog adds a log of lines.
func (a *adapter) newLog(name, include string, l *accessLog, f logFormat) {
	enc := nginxhttp.Encoder{Format: f.text, Escape: f.escape}
	a.logs[name] = &caddy.CustomLog{
		BaseLog: caddy.BaseLog{
			WriterRaw:  writer(a, l),
			EncoderRaw: caddyconfig.JSONModuleObject(enc, "format", "nginx", nil),
		},
		Include: []string{include + name},
	}
}
