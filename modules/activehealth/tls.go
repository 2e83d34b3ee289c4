// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"reflect"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(new(TLS)) }

// TLS makes a TLS handshake with a server and checks its certificate.
type TLS struct {
	Settings

	// Names, trust and client certificates, as in Caddy's http transport.
	// Default: those of the handlers of the group that use TLS.
	TLS clienttls.Settings `json:"tls,omitzero"`

	manner
}

// CaddyModule returns the Caddy module information.
func (*TLS) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.health_checks.tls", New: func() caddy.Module { return new(TLS) }}
}

// Provision checks the settings.
func (c *TLS) Provision(ctx caddy.Context) (err error) {
	if err := c.settle(); err != nil {
		return err
	}
	own := &c.TLS
	if reflect.ValueOf(c.TLS).IsZero() {
		own = nil
	}
	return c.settleTLS(ctx, own, tlsAlways)
}

// Rules implements upstream.HealthCheck.
func (c *TLS) Rules() upstream.CheckRules { return c.rules("tls") }

// Watch implements upstream.HealthCheck.
func (c *TLS) Watch(judge upstream.Judge) upstream.Watcher {
	return watch("tls", c, &c.Settings, c.client, judge)
}

// check implements checker.
func (c *TLS) check(ctx context.Context, t target) error {
	conn, err := dial(ctx, t, c.client)
	if err != nil {
		return err
	}
	return conn.Close()
}

// UnmarshalCaddyfile reads `health_check tls [<setting>=<value>...] [tls_server_name=]
// [tls_insecure_skip_verify] [tls_trusted_ca_certs=] [tls_crl=]`.
func (c *TLS) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	params := c.params()
	tlsParams(params, func() *clienttls.Settings { return &c.TLS })
	if err := params.Parse(d.RemainingArgs()); err != nil {
		return d.Errf("health_check tls: %v", err)
	}
	check := *c
	if err := check.settle(); err != nil {
		return d.Errf("health_check tls: %v", err)
	}
	return noBlock(d, "tls")
}

func noBlock(d *caddyfile.Dispenser, kind string) error {
	if d.NextBlock(d.Nesting()) {
		return d.Errf("health_check %s: unexpected block: everything stands on the line", kind)
	}
	return nil
}

// tlsParams adds the parameters of a check over TLS; need makes its settings.
func tlsParams(params cfg.Params, need func() *clienttls.Settings) {
	params["tls_server_name"] = cfg.Param{Set: func(v string) error { need().ServerName = v; return nil }}
	params["tls_insecure_skip_verify"] = cfg.Param{Flag: true, Set: func(string) error {
		need().InsecureSkipVerify = true
		return nil
	}}
	params["tls_trusted_ca_certs"] = cfg.Param{Set: func(v string) error {
		need().CARaw = cfg.TrustPool(strings.Split(v, ",")...)
		return nil
	}}
	params["tls_crl"] = cfg.Param{Set: func(v string) error { need().CRLFiles = strings.Split(v, ","); return nil }}
}

func needTLS(field **clienttls.Settings) *clienttls.Settings {
	if *field == nil {
		*field = new(clienttls.Settings)
	}
	return *field
}

// Interface guards
var (
	_ upstream.TLSFollower  = (*TLS)(nil)
	_ caddy.Provisioner     = (*TLS)(nil)
	_ caddyfile.Unmarshaler = (*TLS)(nil)
)
