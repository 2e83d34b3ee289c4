// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

func init() { caddy.RegisterModule(new(GRPC)) }

// GRPC is Caddy's own transport over HTTP/2, with or without TLS, with the
// request that nginx's grpc_pass makes. It works below nginx_server only.
type GRPC struct {
	reverseproxy.HTTPTransport
	Message

	// TLS to the servers. Default: none.
	TLS *clienttls.Settings `json:"tls,omitempty"`

	client *clienttls.Client
}

// CaddyModule returns the Caddy module information.
func (*GRPC) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.nginx_grpc",
		New: func() caddy.Module { return new(GRPC) },
	}
}

// Provision sets t up for HTTP/2 alone.
func (t *GRPC) Provision(ctx caddy.Context) error {
	if err := t.provision(); err != nil {
		return fmt.Errorf("nginx_grpc: %w", err)
	}
	verbatim := false // nothing is asked for that the client did not ask for
	t.Compression = &verbatim
	if t.TLS == nil {
		t.Versions = []string{"h2c", "2"}
		return t.HTTPTransport.Provision(ctx)
	}
	t.Versions = []string{"2"}
	return t.provisionTLS(ctx)
}

// provisionTLS puts our settings of TLS into Caddy's transport, which knows its
// own only.
func (t *GRPC) provisionTLS(ctx caddy.Context) (err error) {
	if t.client, err = clienttls.New(ctx, t.TLS); err != nil {
		return fmt.Errorf("nginx_grpc: tls: %w", err)
	}
	t.client.ByAddress = true
	t.HTTPTransport.TLS = &reverseproxy.TLSConfig{
		ServerName: t.TLS.ServerName, HandshakeTimeout: t.TLS.HandshakeTimeout, ExceptPorts: t.TLS.ExceptPorts,
	}
	if err := t.HTTPTransport.Provision(ctx); err != nil {
		return err
	}
	config := t.client.Config.Clone()
	if made := t.Transport.TLSClientConfig; made != nil {
		config.NextProtos = made.NextProtos
	}
	t.Transport.TLSClientConfig = config
	return nil
}

// ServerTLS implements clienttls.User.
func (t *GRPC) ServerTLS() (c *clienttls.Client, known bool) { return t.client, true }

// Bind implements exchange.Binder. A connection over HTTP/2 to each server is kept
// in any case; the adapter warns of settings that say otherwise.
func (*GRPC) Bind(exchange.Store, exchange.Keepalive) error { return nil }

// RequestHeaderOps implements reverseproxy.RequestHeaderOpsTransport.
func (*GRPC) RequestHeaderOps() *headers.HeaderOps { return nil }

// RoundTrip implements http.RoundTripper.
func (t *GRPC) RoundTrip(req *http.Request) (*http.Response, error) {
	out := t.request(req)
	if httpguts.HeaderValuesContainsToken(req.Header["Te"], "trailers") {
		out.Header["Te"] = []string{"trailers"}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // net/http would send its own
	}
	if target := out.URL.Opaque; strings.HasPrefix(target, "//") {
		out.URL.Opaque = "//" + out.Host + target // else its first part is taken for the host
	}
	res, err := t.HTTPTransport.RoundTrip(out)
	if err == nil {
		t.response(req, res)
	}
	return res, err
}

// Interface guards
var (
	_ caddy.Provisioner  = (*GRPC)(nil)
	_ http.RoundTripper  = (*GRPC)(nil)
	_ caddy.CleanerUpper = (*GRPC)(nil)
	_ clienttls.User     = (*GRPC)(nil)
	_ exchange.Binder    = (*GRPC)(nil)
)
