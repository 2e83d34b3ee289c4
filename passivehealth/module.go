// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package passivehealth

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(Tracker{}) }

// Tracker takes a server out after max_fails failures, for fail_timeout; both
// are parameters of the server.
type Tracker struct {
	maxFails
}

// CaddyModule returns the Caddy module information.
func (Tracker) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "upstream.health_trackers.passive",
		New: func() caddy.Module { return new(Tracker) },
	}
}

// UnmarshalCaddyfile reads `health_tracker passive`.
func (*Tracker) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return cfg.Bare(d, "health_tracker passive")
}

// Interface guards
var (
	_ upstream.Tracker      = (*Tracker)(nil)
	_ caddyfile.Unmarshaler = (*Tracker)(nil)
)
