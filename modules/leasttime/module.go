// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package leasttime

import (
	"fmt"

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

// Method chooses by how long the servers take, and by what is in progress there.
type Method struct {
	// Which time counts: to the response `header`, or in stream to the
	// `first_byte` (the two are the same), to the `last_byte`, or, in stream,
	// until the server is connected (`connect`; in HTTP that is `header`).
	Time string `json:"time"`

	// Let the requests that still wait for this time count with how long they
	// have been waiting. Default: false.
	Inflight bool `json:"inflight,omitempty"`

	// Choose the better of two servers drawn at random, by a moving average that
	// follows slow answers at once and fast ones slowly, instead of the best by
	// nginx's rules. Default: false.
	EWMA bool `json:"ewma,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Method) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "upstream.balancers.least_time",
		New: func() caddy.Module { return new(Method) },
	}
}

// Validate checks what belongs together.
func (m Method) Validate() error {
	if _, ok := timing.Metric(m.Time); !ok {
		return fmt.Errorf("least_time %q: expected header, first_byte, last_byte or connect", m.Time)
	}
	if m.EWMA && m.Inflight {
		return fmt.Errorf("least_time ewma: inflight does nothing there")
	}
	return nil
}

// NewBalancer implements upstream.Method.
func (m Method) NewBalancer(l *peer.List, old peer.Balancer) peer.Balancer {
	metric, _ := timing.Metric(m.Time)
	if m.EWMA {
		return EWMA{metric}.NewBalancer(l, old)
	}
	return LeastTime{timing.Mode{Metric: metric, Inflight: m.Inflight}}.NewBalancer(l, old)
}

// UnmarshalCaddyfile reads the line:
//
//	least_time header|first_byte|last_byte|connect [inflight]
//	least_time ewma [header|first_byte|last_byte|connect]
func (m *Method) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return m.unmarshal(d, "least_time")
}

func (m *Method) unmarshal(d *caddyfile.Dispenser, what string) error {
	args := d.RemainingArgs()
	if len(args) > 0 && args[0] == "ewma" {
		m.EWMA, m.Time = true, "header"
		args = args[1:]
	}
	if len(args) > 0 {
		m.Time, args = args[0], args[1:]
	}
	if _, ok := timing.Metric(m.Time); !ok {
		return d.Errf("%s %s: expected header, first_byte, last_byte, connect or ewma", what, m.Time)
	}
	if len(args) > 0 && args[0] == "inflight" && !m.EWMA {
		m.Inflight, args = true, args[1:]
	}
	if len(args) > 0 {
		return d.Errf("%s: unexpected argument %q", what, args[0])
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
		ID:  "http.reverse_proxy.selection_policies.least_time",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision sets up the pool.
func (p *Policy) Provision(ctx caddy.Context) error {
	if err := p.Method.Validate(); err != nil {
		return err
	}
	return p.StaticPool.Provision(ctx, "least_time", p.Method)
}

// UnmarshalCaddyfile sets up the policy from:
//
//	lb_policy least_time header|first_byte|last_byte|connect [inflight] {
//	    server <address> [weight=<n>] [max_fails=<n>] [fail_timeout=<duration>] ...
//	}
//	lb_policy least_time ewma [header|first_byte|last_byte|connect] {
//	    ...
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := p.Method.unmarshal(d, "lb_policy least_time"); err != nil {
		return err
	}
	return p.UnmarshalBlock(d, "least_time")
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
