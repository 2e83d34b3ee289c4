// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package iphash

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	caddy.RegisterModule(Method{})
	caddy.RegisterModule(Policy{})
}

// CaddyModule returns the Caddy module information.
func (Method) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "upstream.balancers.ip_hash",
		New: func() caddy.Module { return new(Method) },
	}
}

// UnmarshalCaddyfile reads the line `ip_hash`.
func (*Method) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("ip_hash: unexpected argument %q: expected none", d.Val())
	}
	return nil
}

// Policy is the same method over the upstreams (`to`) of a reverse_proxy
// handler.
type Policy struct {
	upstream.StaticPool
}

// CaddyModule returns the Caddy module information.
func (Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.subnet_hash",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision sets up the pool.
func (p *Policy) Provision(ctx caddy.Context) error {
	return p.StaticPool.Provision(ctx, "subnet_hash", Method{})
}

// UnmarshalCaddyfile sets up the policy from:
//
//	lb_policy subnet_hash {
//	    server <address> [weight=<n>] [max_fails=<n>] [fail_timeout=<duration>] ...
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("lb_policy subnet_hash: unexpected argument %q: expected none", d.Val())
	}
	return p.UnmarshalBlock(d, "subnet_hash")
}

// Interface guards
var (
	_ upstream.Method       = Method{}
	_ caddyfile.Unmarshaler = (*Method)(nil)
	_ caddy.Provisioner     = (*Policy)(nil)
	_ caddy.CleanerUpper    = (*Policy)(nil)
	_ reverseproxy.Selector = (*Policy)(nil)
	_ caddyfile.Unmarshaler = (*Policy)(nil)
)
