// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)

func init() { caddy.RegisterModule(new(Request)) }

// Request is the transport upstream_keepalive with the request that nginx's
// proxy_pass makes: nothing is added to what the client sent but what is
// configured, and the path is changed as proxy_pass says. It works below
// nginx_server only.
type Request struct {
	upstreamkeepalive.Transport
	Message
}

// CaddyModule returns the Caddy module information.
func (*Request) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.nginx_request",
		New: func() caddy.Module { return new(Request) },
	}
}

// Provision sets t up.
func (t *Request) Provision(ctx caddy.Context) error {
	if err := t.provision(); err != nil {
		return fmt.Errorf("nginx_request: %w", err)
	}
	return t.Transport.Provision(ctx)
}

// RequestHeaderOps implements reverseproxy.RequestHeaderOpsTransport.
func (*Request) RequestHeaderOps() *headers.HeaderOps { return nil }

// RoundTrip implements http.RoundTripper.
func (t *Request) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(t.request(req))
	if err == nil {
		t.response(req, res)
	}
	return res, err
}

// Exchange implements exchange.Exchanger.
func (t *Request) Exchange(req *http.Request, a *exchange.Attempt) (*http.Response, error) {
	res, err := t.Transport.Exchange(t.request(req), a)
	if err == nil {
		t.response(req, res)
	}
	return res, err
}

// Interface guards
var (
	_ caddy.Provisioner  = (*Request)(nil)
	_ exchange.Exchanger = (*Request)(nil)
	_ http.RoundTripper  = (*Request)(nil)
	_ caddy.CleanerUpper = (*Request)(nil)
	_ exchange.Binder    = (*Request)(nil)
)
