// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/timing"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	caddy.RegisterModule(Method{})
	caddy.RegisterModule(Policy{})
}

// Method draws servers at random, by their weights.
type Method struct {
	// Draw two servers and take the better one. Default: false.
	Two bool `json:"two,omitempty"`

	// Which of two is better: the one with the shorter time to the response
	// `header`, or in stream to the `first_byte` (the two are the same), to the
	// `last_byte`, or, in stream, until it is connected (`connect`). Default: the
	// one with fewer requests in progress for its weight.
	LeastTime string `json:"least_time,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Method) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "upstream.balancers.random",
		New: func() caddy.Module { return new(Method) },
	}
}

// Validate checks what belongs together.
func (m Method) Validate() error {
	switch {
	case m.LeastTime != "" && !m.Two:
		return fmt.Errorf("random: least_time needs two")
	}
	if _, ok := timing.Metric(m.LeastTime); m.LeastTime != "" && !ok {
		return fmt.Errorf("random: least_time=%s: expected header, first_byte, last_byte or connect", m.LeastTime)
	}
	return nil
}

// NewBalancer implements upstream.Method.
func (m Method) NewBalancer(l *peer.List, old peer.Balancer) peer.Balancer {
	if !m.Two {
		return Plain{}.NewBalancer(l, old)
	}
	if metric, ok := timing.Metric(m.LeastTime); ok {
		return LeastTime{timing.Mode{Metric: metric}}.NewBalancer(l, old)
	}
	return LeastConn{}.NewBalancer(l, old)
}

// UnmarshalCaddyfile reads the line:
//
//	random [two [least_conn | least_time=header|first_byte|last_byte|connect]]
func (m *Method) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return m.unmarshal(d, "random")
}

func (m *Method) unmarshal(d *caddyfile.Dispenser, what string) error {
	args := d.RemainingArgs()
	if len(args) > 0 {
		if args[0] != "two" {
			return d.Errf("%s: unexpected argument %q: expected two", what, args[0])
		}
		m.Two = true
	}
	if len(args) > 1 {
		value, timed := strings.CutPrefix(args[1], "least_time=")
		if !timed && args[1] != "least_conn" || timed && value == "" {
			return d.Errf("%s: unexpected argument %q: expected least_conn, or least_time= with header, first_byte, last_byte or connect", what, args[1])
		}
		if timed {
			m.LeastTime = value
		}
	}
	if len(args) > 2 {
		return d.Errf("%s: unexpected argument %q: expected no more", what, args[2])
	}
	if err := m.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Policy is the same method over the upstreams (`to`) of a reverse_proxy
// handler.
type Policy struct {
	Method
	upstream.StaticPool
}

// CaddyModule returns the Caddy module information.
func (Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.weighted_random",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision sets up the pool.
func (p *Policy) Provision(ctx caddy.Context) error {
	if err := p.Method.Validate(); err != nil {
		return err
	}
	return p.StaticPool.Provision(ctx, "weighted_random", p.Method)
}

// UnmarshalCaddyfile sets up the policy from:
//
//	lb_policy weighted_random [two [least_conn | least_time=header|first_byte|last_byte|connect]] {
//	    server <address> [weight=<n>] [max_fails=<n>] [fail_timeout=<duration>] ...
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := p.Method.unmarshal(d, "lb_policy weighted_random"); err != nil {
		return err
	}
	return p.UnmarshalBlock(d, "weighted_random")
}

// Interface guards
var (
	_ upstream.Method       = Method{}
	_ caddy.Validator       = Method{}
	_ caddyfile.Unmarshaler = (*Method)(nil)
	_ caddy.Provisioner     = (*Policy)(nil)
	_ caddy.CleanerUpper    = (*Policy)(nil)
	_ reverseproxy.Selector = (*Policy)(nil)
	_ caddyfile.Unmarshaler = (*Policy)(nil)
)
