// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	caddy.RegisterModule(Method{})
	caddy.RegisterModule(Policy{})
}

// Method binds requests to servers by the hash of a key, as nginx's `hash`.
type Method struct {
	// The key, with placeholders. Requests for which it is empty are balanced by
	// smooth round robin.
	Key string `json:"key"`

	// Put the servers on a ring, so that only the keys of a server that comes or
	// goes move. Default: false, and then most keys move.
	Consistent bool `json:"consistent,omitempty"`

	// How many times the mean number of requests in progress, for its weight, a
	// server may have; requests that would be one too many go to the next server
	// on the ring. 1 or more; needs `consistent`. Default: 0, no limit.
	BalanceFactor float64 `json:"balance_factor,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Method) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "upstream.balancers.hash",
		New: func() caddy.Module { return new(Method) },
	}
}

// Validate checks what belongs together.
func (m Method) Validate() error {
	switch {
	case m.Key == "":
		return fmt.Errorf("hash: the key is missing")
	case m.BalanceFactor == 0:
		return nil
	case !m.Consistent:
		return fmt.Errorf("hash: balance_factor needs consistent")
	case !(m.BalanceFactor >= 1 && m.BalanceFactor <= 1e6):
		return fmt.Errorf("hash: balance_factor %v: expected a number from 1 to 1000000", m.BalanceFactor)
	}
	return nil
}

// Wants implements upstream.Wanter.
func (m Method) Wants() peer.Wants { return peer.Wants{Key: m.Key} }

// NewBalancer implements upstream.Method.
func (m Method) NewBalancer(l *peer.List, old peer.Balancer) peer.Balancer {
	if m.Consistent {
		return Consistent{BalanceFactor: m.BalanceFactor}.NewBalancer(l, old)
	}
	return Plain{}.NewBalancer(l, old)
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
		ID:  "http.reverse_proxy.selection_policies.key_hash",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision sets up the pool.
func (p *Policy) Provision(ctx caddy.Context) error {
	if err := p.Method.Validate(); err != nil {
		return err
	}
	return p.StaticPool.Provision(ctx, "key_hash", p.Method)
}

// Interface guards
var (
	_ upstream.Method       = Method{}
	_ upstream.Wanter       = Method{}
	_ caddy.Validator       = Method{}
	_ caddyfile.Unmarshaler = (*Method)(nil)
	_ caddy.Provisioner     = (*Policy)(nil)
	_ caddy.CleanerUpper    = (*Policy)(nil)
	_ reverseproxy.Selector = (*Policy)(nil)
	_ caddyfile.Unmarshaler = (*Policy)(nil)
)
