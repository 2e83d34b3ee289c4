// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package wrap lets a transport stand around another one without hiding what
// Caddy's reverse_proxy asks transports for through optional interfaces.
package wrap

import (
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
)

// Transport forwards every optional interface of Caddy's transports to Inner,
// with the answer of a transport that does not have it otherwise.
type Transport struct {
	Inner http.RoundTripper `json:"-"`
}

// TLSEnabled implements reverseproxy.TLSTransport.
func (t *Transport) TLSEnabled() bool {
	inner, ok := t.Inner.(reverseproxy.TLSTransport)
	return ok && inner.TLSEnabled()
}

// EnableTLS implements reverseproxy.TLSTransport.
func (t *Transport) EnableTLS(base *reverseproxy.TLSConfig) error {
	if inner, ok := t.Inner.(reverseproxy.TLSTransport); ok {
		return inner.EnableTLS(base)
	}
	return errNot{t.Inner, "TLS"}
}

// EnableH2C implements reverseproxy.H2CTransport.
func (t *Transport) EnableH2C() error {
	if inner, ok := t.Inner.(reverseproxy.H2CTransport); ok {
		return inner.EnableH2C()
	}
	return errNot{t.Inner, "h2c"}
}

// ProxyProtocolEnabled implements reverseproxy.ProxyProtocolTransport.
func (t *Transport) ProxyProtocolEnabled() bool {
	inner, ok := t.Inner.(reverseproxy.ProxyProtocolTransport)
	return ok && inner.ProxyProtocolEnabled()
}

// OverrideHealthCheckScheme implements
// reverseproxy.HealthCheckSchemeOverriderTransport.
func (t *Transport) OverrideHealthCheckScheme(base *url.URL, port string) {
	if inner, ok := t.Inner.(reverseproxy.HealthCheckSchemeOverriderTransport); ok {
		inner.OverrideHealthCheckScheme(base, port)
	} else if t.TLSEnabled() {
		base.Scheme = "https"
	}
}

// RequiresContentLength implements reverseproxy.ContentLengthRequiredTransport.
func (t *Transport) RequiresContentLength() bool {
	inner, ok := t.Inner.(reverseproxy.ContentLengthRequiredTransport)
	return ok && inner.RequiresContentLength()
}

// DefaultBufferSizes implements reverseproxy.BufferedTransport.
func (t *Transport) DefaultBufferSizes() (request, response int64) {
	if inner, ok := t.Inner.(reverseproxy.BufferedTransport); ok {
		return inner.DefaultBufferSizes()
	}
	return 0, 0
}

// RequestHeaderOps implements reverseproxy.RequestHeaderOpsTransport.
func (t *Transport) RequestHeaderOps() *headers.HeaderOps {
	if inner, ok := t.Inner.(reverseproxy.RequestHeaderOpsTransport); ok {
		return inner.RequestHeaderOps()
	}
	return nil
}

// ServerTLS implements clienttls.User.
func (t *Transport) ServerTLS() (c *clienttls.Client, known bool) { return clienttls.Of(t.Inner) }

type errNot struct {
	inner http.RoundTripper
	what  string
}

func (e errNot) Error() string {
	if mod, ok := e.inner.(interface{ CaddyModule() caddy.ModuleInfo }); ok {
		return "transport " + mod.CaddyModule().ID.Name() + " cannot do " + e.what
	}
	return "the transport cannot do " + e.what
}
