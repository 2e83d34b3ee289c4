// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package smoothrr

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	caddy.RegisterModule(Method{})
	caddy.RegisterModule(Policy{})
}

// Method chooses by smooth weighted round robin, nginx's
// default: with weights 5, 1, 1 the order is a a b a c a a.
type Method struct{}

// CaddyModule returns the Caddy module information.
func (Method) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "upstream.balancers.smooth_round_robin",
		New: func() caddy.Module { return new(Method) },
	}
}

// NewBalancer implements upstream.Method.
func (Method) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return balancer{} }

// UnmarshalCaddyfile reads the line `smooth_round_robin`.
func (*Method) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return cfg.Bare(d, "smooth_round_robin")
}

// Policy is the same method over the upstreams (`to`) of a reverse_proxy
// handler.
type Policy struct {
	upstream.StaticPool
}

// CaddyModule returns the Caddy module information.
func (Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.smooth_round_robin",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision sets up the pool.
func (p *Policy) Provision(ctx caddy.Context) error {
	return p.StaticPool.Provision(ctx, "smooth_round_robin", Method{})
}

// UnmarshalCaddyfile sets up the policy from:
//
//	lb_policy smooth_round_robin {
//	    server <address> [weight=<n>] [max_fails=<n>] [fail_timeout=<duration>] ...
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("lb_policy smooth_round_robin: unexpected argument %q: expected none", d.Val())
	}
	return p.UnmarshalBlock(d, "smooth_round_robin")
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
