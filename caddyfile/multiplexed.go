// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)

// lacking are the options that Caddy's own http transport has no setting for, or
// one that does nothing: they are refused, each for itself.
var lacking = []struct {
	option string
	only3  bool                                    // over HTTP/2 it has the setting
	given  func(*upstreamkeepalive.Transport) bool // nil: in whatever form
	why    string
}{
	{option: "keepalive", why: "keepalive" + oneConnection},
	{option: "keepalive_requests", why: "keepalive_requests" + oneConnection},
	{option: "keepalive_time", why: "keepalive_time" + oneConnection},
	{option: "tls_crl", why: "tls_crl is for HTTP/1 servers: Caddy's transport for HTTP/2 and 3 has no revocation lists"},
	{
		option: "tls_client_auth", given: func(t *upstreamkeepalive.Transport) bool { return t.TLS.ClientCertificatePasswordFile != "" },
		why: "tls_client_auth with a file of passwords is for HTTP/1 servers: for HTTP/2 and 3, use a key that is not encrypted",
	},
	{option: "tls_protocols", why: "tls_protocols is for HTTP/1 servers: Caddy's transport for HTTP/2 offers TLS 1.2 and 1.3, and that for HTTP/3 only 1.3"},
	{option: "tls_no_session_resumption", why: "tls_no_session_resumption is for HTTP/1 servers: Caddy's transport for HTTP/2 and 3 resumes no sessions: leave it out"},
	{option: "send_timeout", only3: true, why: "send_timeout is for HTTP/1 and 2 servers: Caddy's transport for HTTP/3 has none"},
	{option: "keepalive_timeout", only3: true, why: "keepalive_timeout is for HTTP/1 and 2 servers: over HTTP/3 the connection is kept"},
	{option: "response_header_limit", only3: true, why: "response_header_limit is for HTTP/1 and 2 servers: Caddy's transport for HTTP/3 has its own limit"},
	{option: "bind", only3: true, why: "bind is for HTTP/1 and 2 servers: Caddy's transport for HTTP/3 chooses the address itself"},
	{option: "proxy_protocol", only3: true, why: "proxy_protocol is for HTTP/1 and 2 servers: there is none for HTTP/3"},
	{option: "tls_timeout", only3: true, why: "tls_timeout is for HTTP/1 and 2 servers: in HTTP/3 the handshake is part of connecting"},
	{option: "tls_except_ports", only3: true, why: "tls_except_ports is for HTTP/1 and 2 servers: there is no HTTP/3 without TLS"},
	{option: "tls_renegotiation", only3: true, why: "tls_renegotiation is for HTTP/1 and 2 servers: there is none in TLS 1.3, which HTTP/3 uses"},
}

const oneConnection = " is for HTTP/1 servers: HTTP/2 and 3 keep one connection to each server"

// checkLacking finds an option that would be lost on the way to Caddy's own
// transport.
func (b *backend) checkLacking() error {
	for _, l := range lacking {
		if b.given[l.option] == nil || l.only3 && b.version != "3" || l.given != nil && !l.given(b.http1) {
			continue
		}
		return b.errf(l.option, "%s", l.why)
	}
	return nil
}

// multiplexed makes Caddy's own http transport for HTTP/2, h2c and HTTP/3.
func (b *backend) multiplexed(scheme string) (*reverseproxy.HTTPTransport, error) {
	if err := b.checkLacking(); err != nil {
		return nil, err
	}
	h := b.http1
	var tls *reverseproxy.TLSConfig
	if h.TLS != nil {
		tls = &h.TLS.TLSConfig
	}
	versions := []string{b.version}
	if scheme == "h2c" {
		versions = []string{"h2c", "2"}
	}
	const minute = caddy.Duration(60e9) // nginx's default
	t := &reverseproxy.HTTPTransport{
		Versions: versions, TLS: tls,
		DialTimeout:           orElse(h.ConnectTimeout, minute),
		ResponseHeaderTimeout: orElse(h.ReadTimeout, minute),
		ReadTimeout:           h.ReadTimeout, WriteTimeout: h.SendTimeout,
		MaxResponseHeaderSize: int64(h.ResponseHeaderLimit),
		LocalAddress:          h.BindAddress, ProxyProtocol: h.ProxyProtocol,
	}
	if h.KeepaliveTimeout > 0 {
		t.KeepAlive = &reverseproxy.KeepAlive{IdleConnTimeout: h.KeepaliveTimeout}
	}
	return t, nil
}

func orElse(d, otherwise caddy.Duration) caddy.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
