// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
	"github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)

// innermost makes the transport that talks to the servers.
func (a *adapter) innermost(s *scope, l *nginxhttp.Location, p *proxyPass, t *target) (json.RawMessage, error) {
	message, said, err := a.message(s, l, p, t)
	if err != nil {
		return nil, err
	}
	tls, err := a.proxyTLS(s, p, t)
	if err != nil {
		return nil, err
	}
	if p.grpc {
		a.warnGRPCKeepalive(t.group)
		r := &nginxhttp.GRPC{Message: message, HTTPTransport: grpcTransport(s)}
		r.TLS = tls
		return caddyconfig.JSONModuleObject(r, "protocol", "nginx_grpc", nil), nil
	}
	r := &nginxhttp.Request{Message: message}
	a.transport(s, &r.Transport, t, said)
	r.TLS = tls
	return caddyconfig.JSONModuleObject(r, "protocol", "nginx_request", nil), nil
}

// grpcTransport sets what concerns connections over HTTP/2.
func grpcTransport(s *scope) reverseproxy.HTTPTransport {
	const def = 60 * time.Second
	read := caddy.Duration(value(s, "grpc_read_timeout", def))
	return reverseproxy.HTTPTransport{
		DialTimeout:           caddy.Duration(value(s, "grpc_connect_timeout", def)),
		WriteTimeout:          caddy.Duration(value(s, "grpc_send_timeout", def)),
		ReadTimeout:           read,
		ResponseHeaderTimeout: read,
		MaxResponseHeaderSize: value(s, "grpc_buffer_size", int64(0)),
		LocalAddress:          value(s, "grpc_bind", ""),
	}
}

// message makes what says what is sent; connection: the field Connection is
// among it.
func (a *adapter) message(s *scope, l *nginxhttp.Location, p *proxyPass, t *target) (m nginxhttp.Message, connection bool, err error) {
	local := map[string]string{"proxy_host": literal(t.host), "proxy_port": t.port}
	m.Host = literal(t.host)
	if p.hasURI {
		m.URI = template(p.uri, local)
		if !hasVariables(p.host + p.uri) {
			m.Replaces = l.Path
		}
	}
	for _, h := range list[pair](s, p.option("set_header")) {
		switch {
		case strings.EqualFold(h.name, "Host"):
			m.Host = template(h.value, local)
			continue
		case strings.EqualFold(h.name, "Connection"):
			connection = true
			if h.value == "" {
				continue
			}
		}
		m.SetHeaders = append(m.SetHeaders, nginxhttp.Field{Name: h.name, Value: template(h.value, local)})
	}
	m.HideHeaders = list[string](s, p.option("hide_header"))
	m.PassHeaders = list[string](s, p.option("pass_header"))
	m.IgnoreHeaders = value(s, p.option("ignore_headers"), []string(nil))
	if p.grpc {
		return m, connection, nil
	}
	m.DropHeaders = !value(s, "proxy_pass_request_headers", true)
	m.DropBody = !value(s, "proxy_pass_request_body", true)
	m.Cookies = cookies(s)
	if value(s, "proxy_buffering", true) { // nginx's limit is for what it buffers
		m.LimitRate = template(value(s, "proxy_limit_rate", ""), nil)
	}
	m.Method = template(value(s, "proxy_method", ""), nil)
	m.Redirects, err = a.redirects(s, l, p)
	return m, connection, err
}

// httpVersion is the version of requests to servers by default.
func (a *adapter) httpVersion() string {
	if a.version.atLeast(1, 29, 7) {
		return "1.1"
	}
	return "1.0"
}

// transport sets what concerns connections.
func (a *adapter) transport(s *scope, k *upstreamkeepalive.Transport, t *target, connection bool) {
	k.ConnectTimeout = duration(s, "proxy_connect_timeout")
	k.SendTimeout = duration(s, "proxy_send_timeout")
	k.ReadTimeout = duration(s, "proxy_read_timeout")
	k.BindAddress = value(s, "proxy_bind", "")
	if v := value(s, "proxy_http_version", a.httpVersion()); v != "1.1" {
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
