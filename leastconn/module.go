// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package leastconn

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

// Method chooses the server with the fewest requests or sessions in
// progress for its weight; among equals by smooth weighted round robin. A pick
// looks at every server.
type Method struct{}

// CaddyModule returns the Caddy module information.
func (Method) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "upstream.balancers.least_conn",
		New: func() caddy.Module { return new(Method) },
	}
}

// NewBalancer implements upstream.Method.
func (Method) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return balancer{} }

// UnmarshalCaddyfile reads the line `least_conn`.
func (*Method) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return cfg.Bare(d, "least_conn")
}

// Policy is the same method over the upstreams (`to`) of a reverse_proxy
// handler.
type Policy struct {
	upstream.StaticPool
}

// CaddyModule returns the Caddy module information.
func (Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.weighted_least_conn",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision sets up the pool.
func (p *Policy) Provision(ctx caddy.Context) error {
	return p.StaticPool.Provision(ctx, "weighted_least_conn", Method{})
}

// UnmarshalCaddyfile sets up the policy from:
//
//	lb_policy weighted_least_conn {
//	    server <address> [weight=<n>] [max_fails=<n>] [fail_timeout=<duration>] ...
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("lb_policy weighted_least_conn: unexpected argument %q: expected none", d.Val())
	}
	return p.UnmarshalBlock(d, "weighted_least_conn")
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
