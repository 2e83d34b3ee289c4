// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() { caddy.RegisterModule(Policy{}) }

// Policy chooses among the servers of a named group of the upstream app.
type Policy struct {
	// The name of the group.
	Group string `json:"group"`

	*selector
	held *Runtime
}

// CaddyModule returns the Caddy module information.
func (Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.upstream",
		New: func() caddy.Module { return new(Policy) },
	}
}

// Provision finds the group and connects to the handler's transport.
func (p *Policy) Provision(ctx caddy.Context) error {
	if p.Group == "" {
		return fmt.Errorf("group is missing: expected the name of a group")
	}
	g, err := groupOf(ctx, p.Group)
	if err != nil {
		return err
	}
	h := ParentHandler(ctx)
	if h == nil {
		return fmt.Errorf("policy upstream works in a reverse_proxy handler only")
	}
	if err := soleSource(h, p.Group); err != nil {
		return err
	}
	if err := g.tellTransport(h.Transport); err != nil {
		return err
	}
	// handlers may pick after the app's cleanup, so each holds the state itself
	if p.held, err = acquire(runtimeKey{name: p.Group}); err != nil {
		return err
	}
	p.selector = newSelector(p.held, ctx.Logger(&App{}))
	p.affinity = g.affinity
	warnKey(p.logger, p.Group, "http", g.method, inHTTP)
	return p.attach(ctx, h, g.Keepalive)
}

// soleSource refuses what would do nothing beside a group.
func soleSource(h *reverseproxy.Handler, group string) error {
	what := ""
	switch {
	case len(h.Upstreams) > 0:
		what = "a list of upstreams (to) does"
	case h.DynamicUpstreamsRaw != nil:
		what = "dynamic upstreams do"
	case h.HealthChecks != nil && h.HealthChecks.Passive != nil:
		what = "passive health checks (fail_duration, max_fails, unhealthy_*) do"
	case h.HealthChecks != nil:
		what = "active health checks (health_uri and other health_*) do"
	case h.CBRaw != nil:
		what = "circuit_breaker does"
	default:
		return nil
	}
	return fmt.Errorf("%s nothing beside lb_policy upstream %s: the group has its own servers and health", what, group)
}

// Cleanup releases the group.
func (p *Policy) Cleanup() error {
	if p.held == nil {
		return nil
	}
	r := p.held
	p.held = nil
	return r.release()
}

// Select implements reverseproxy.Selector.
func (p *Policy) Select(_ reverseproxy.UpstreamPool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	return p.pick(w, r)
}

// UnmarshalCaddyfile sets up the policy from:
//
//	lb_policy upstream <group>
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	var err error
	p.Group, err = parseGroupName(d, "lb_policy upstream")
	return err
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Policy)(nil)
	_ caddy.CleanerUpper    = (*Policy)(nil)
	_ reverseproxy.Selector = (*Policy)(nil)
	_ caddyfile.Unmarshaler = (*Policy)(nil)
)
