// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"fmt"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/access"
	"github.com/caddy-upstream/caddy-upstream/internal/pools"
)

func init() {
	caddy.RegisterModule(Access{})
	caddy.RegisterModule(LimitConn{})
}

// Access allows or denies clients by address: the first rule that matches
// decides, a client that none matches is allowed.
type Access struct {
	// The rules, in order.
	Rules []access.Rule `json:"rules"`

	rules *access.Rules
}

// CaddyModule returns the Caddy module information.
func (Access) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.access", New: func() caddy.Module { return new(Access) }}
}

// Provision checks the rules.
func (a *Access) Provision(caddy.Context) error {
	var err error
	a.rules, err = access.New(a.Rules)
	return err
}

// Phase implements Handler.
func (*Access) Phase() Phase { return AccessPhase }

// Handle implements Handler.
func (a *Access) Handle(s *Session) error {
	if a.rules.Allowed(s.Client()) {
		return nil
	}
	return endWith(StatusForbidden, "denied by access rules")
}

// unmarshalRule reads one line `allow <address>` or `deny <address>`.
func (a *Access) unmarshalRule(d *caddyfile.Dispenser) error {
	allow := d.Val() == "allow"
	name := d.Val()
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.Errf("%s: expected an address, a network, unix: or all", name)
	}
	for _, match := range args {
		if match == "unix" {
			match = "unix:"
		}
		rule := access.Rule{Allow: allow, Match: match}
		if _, err := access.New([]access.Rule{rule}); err != nil {
			return d.Errf("%s: %v", name, err)
		}
		a.Rules = append(a.Rules, rule)
	}
	return nil
}

// LimitConn limits the number of sessions with the same key.
type LimitConn struct {
	// What sessions are counted by, with placeholders; sessions with an empty
	// key are not counted. Default: `{stream.remote_addr}`.
	Key string `json:"key,omitempty"`

	// The number of sessions that a key may have at once.
	Limit int `json:"limit"`

	// The name of the counters. Handlers with the same zone and key share them,
	// over all servers and over reloads. Default: one zone for each key.
	Zone string `json:"zone,omitempty"`

	// Only log what would be rejected.
	DryRun bool `json:"dry_run,omitempty"`

	counters *counters
	poolKey  string
}

// CaddyModule returns the Caddy module information.
func (LimitConn) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.limit_conn", New: func() caddy.Module { return new(LimitConn) }}
}

// counters are the numbers of open sessions by key.
type counters struct {
	mu sync.Mutex // guards n
	n  map[string]int
}

// Destruct implements caddy.Destructor.
func (*counters) Destruct() error { return nil }

var limitZones = pools.New("limit_conn zone")

// maxLimitKey is the longest key that is counted, in bytes.
const maxLimitKey = 255

// Provision joins the zone.
func (l *LimitConn) Provision(caddy.Context) error {
	if l.Key == "" {
		l.Key = "{stream.remote_addr}"
	}
	if l.Limit < 1 {
		return fmt.Errorf("limit %d: expected 1 or more", l.Limit)
	}
	key := l.Zone + "\x00" + l.Key
	v, _, err := limitZones.LoadOrNew(key, func() (caddy.Destructor, error) {
		return &counters{n: map[string]int{}}, nil
	})
	if err != nil {
		return err
	}
	l.counters, l.poolKey = v.(*counters), key
	return nil
}

// Cleanup leaves the zone.
func (l *LimitConn) Cleanup() error {
	if l.poolKey == "" {
		return nil
	}
	key := l.poolKey
	l.poolKey = ""
	_, err := limitZones.Delete(key)
	return err
}

// Phase implements Handler.
func (*LimitConn) Phase() Phase { return Preaccess }

// Handle implements Handler.
func (l *LimitConn) Handle(s *Session) error {
	key := s.expand(l.Key)
	switch {
	case key == "":
		return nil
	case len(key) > maxLimitKey:
		s.server.logger.Error("limit_conn: key is longer than 255 bytes: session not counted")
		return nil
	}
	if l.counters.take(key, l.Limit) {
		s.limit = "PASSED"
		s.limits = append(s.limits, func() { l.counters.give(key) })
		return nil
	}
	if l.DryRun {
		s.limit = "REJECTED_DRY_RUN"
		s.server.logger.Warn("limiting connections, dry run")
		return nil
	}
	s.limit = "REJECTED"
	return endWith(StatusUnavailable, "limiting connections to %d", l.Limit)
}

func (c *counters) take(key string, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[key] >= limit {
		return false
	}
	c.n[key]++
	return true
}

func (c *counters) give(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[key]--; c.n[key] == 0 {
		delete(c.n, key)
	}
}

// UnmarshalCaddyfile reads:
//
//	limit_conn [<key>] <n> {
//	    zone <name>
//	    dry_run
//	}
func (l *LimitConn) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	args := d.RemainingArgs()
	switch len(args) {
	case 1:
	case 2:
		l.Key = args[0]
	default:
		return d.Errf("limit_conn: got %d arguments, expected [<key>] <number>", len(args))
	}
	n, err := cfg.ParseInt(args[len(args)-1], 1)
	if err != nil {
		return d.Errf("limit_conn: %v", err)
	}
	l.Limit = n
	return cfg.Options{
		"zone":    cfg.String(&l.Zone),
		"dry_run": cfg.Flag(&l.DryRun),
	}.Block(d, "limit_conn", nil)
}

// Interface guards
var (
	_ Handler               = (*Access)(nil)
	_ caddy.Provisioner     = (*Access)(nil)
	_ Handler               = (*LimitConn)(nil)
	_ caddy.Provisioner     = (*LimitConn)(nil)
	_ caddy.CleanerUpper    = (*LimitConn)(nil)
	_ caddyfile.Unmarshaler = (*LimitConn)(nil)
)
