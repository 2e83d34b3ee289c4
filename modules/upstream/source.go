// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() { caddy.RegisterModule(Source{}) }

// Source is a group's live members as a dynamic list of upstreams, for selection
// policies other than ours: servers that are down, draining, disabled or full
// are left out, backups are listed only when no primary server is left. What
// becomes of the requests is not accounted to the group.
type Source struct {
	// The name of the group.
	Group string `json:"group"`

	runtime *Runtime
}

// CaddyModule returns the Caddy module information.
func (Source) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.upstreams.upstream",
		New: func() caddy.Module { return new(Source) },
	}
}

// Provision finds the group.
func (s *Source) Provision(ctx caddy.Context) error {
	if s.Group == "" {
		return fmt.Errorf("group is missing: expected the name of a group")
	}
	g, err := groupOf(ctx, s.Group)
	if err != nil {
		return err
	}
	if h := ParentHandler(ctx); h != nil {
		if err := g.tellTransport(h.Transport); err != nil {
			return err
		}
	}
	if g.Keepalive != nil {
		warnKeepalive(ctx.Logger(&App{}), s.Group, "dynamic upstream")
	}
	s.runtime, err = acquire(runtimeKey{name: s.Group})
	return err
}

// Cleanup releases the group.
func (s *Source) Cleanup() error {
	if s.runtime == nil {
		return nil
	}
	r := s.runtime
	s.runtime = nil
	return r.release()
}

// GetUpstreams implements reverseproxy.UpstreamSource. Caddy writes into what
// it returns, so the values are new each time.
func (s *Source) GetUpstreams(*http.Request) ([]*reverseproxy.Upstream, error) {
	now := time.Now()
	var primary, backup []*reverseproxy.Upstream
	for _, p := range s.runtime.group.Snapshot(now) {
		if !p.Available(now) {
			continue
		}
		u := &reverseproxy.Upstream{Dial: p.Server.Address}
		if p.Server.Backup {
			backup = append(backup, u)
		} else {
			primary = append(primary, u)
		}
	}
	if len(primary) == 0 {
		return backup, nil
	}
	return primary, nil
}

// UnmarshalCaddyfile sets up the source from:
//
//	dynamic upstream <group>
func (s *Source) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	var err error
	s.Group, err = parseGroupName(d, "dynamic upstream")
	return err
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Source)(nil)
	_ caddy.CleanerUpper          = (*Source)(nil)
	_ reverseproxy.UpstreamSource = (*Source)(nil)
	_ caddyfile.Unmarshaler       = (*Source)(nil)
)
