// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Server is one server of a group, as on nginx's `server` line.
type Server struct {
	// The name of the server in its group, in the runtime API and in logs.
	// Default: the address. A server whose address is a host name has one peer
	// for each address that the name has, named `<id>/<address>`.
	ID string `json:"id,omitempty"`

	// Where to connect: `host:port`, `host` (port 80), or `unix//path/to.sock`.
	// A host name is looked up once, when the configuration is loaded.
	Address string `json:"address"`

	// The server's share of the traffic. Default: 1.
	Weight *int `json:"weight,omitempty"`

	// The number of requests or sessions that may be in progress at once.
	// Default: 0, no limit.
	MaxConns int `json:"max_conns,omitempty"`

	// The number of failures after which the server is not used for
	// `fail_timeout`. 0 switches this off. Default: 1.
	MaxFails *int `json:"max_fails,omitempty"`

	// How long failures are remembered, and how long the server is then not
	// used. Default: 10s.
	FailTimeout *caddy.Duration `json:"fail_timeout,omitempty"`

	// Use this server only when no primary server can be used.
	Backup bool `json:"backup,omitempty"`

	// Never use this server.
	Down bool `json:"down,omitempty"`

	// Send no new traffic to this server, but let what is bound to it finish.
	Drain bool `json:"drain,omitempty"`

	// How long the server, once it is drained, set down or removed, may finish the
	// requests and sessions that it has; what is open then is closed, and clients
	// that are bound to it go elsewhere. 0s is at once. Default: no limit.
	DrainTimeout *caddy.Duration `json:"drain_timeout,omitempty"`

	// The time in which a server that has come back, or was added to running
	// ones, climbs to its weight. Default: 0, at once.
	SlowStart caddy.Duration `json:"slow_start,omitempty"`

	// The server's name in the group's `sticky` sessions. Default: a digest of
	// the address.
	Route string `json:"route,omitempty"`

	// `tcp`: once `fail_timeout` is over, connect to the server in the background
	// first, and use it for requests only when that has succeeded. Default: the
	// next request is the test.
	Probe string `json:"probe,omitempty"`

	// Look the host name up at run time, again and again, with the group's
	// `resolver`. Until the first answer the server has no addresses.
	Resolve bool `json:"resolve,omitempty"`

	// With `resolve`: look up the SRV records of this service of the name:
	// `http` for _http._tcp, or a text with a dot as it is.
	Service string `json:"service,omitempty"`
}

// peers returns the peers of s, one for each address.
func (s *Server) peers(ctx context.Context, known running) ([]peer.Server, error) {
	address, err := settle(s.Address)
	if err != nil {
		return nil, fmt.Errorf("server %w", err)
	}
	base, err := s.base(address)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Address, err)
	}
	if s.Resolve || s.Service != "" {
		if _, err := s.query(address); err != nil {
			return nil, fmt.Errorf("server %s: %w", s.Address, err)
		}
		return nil, nil // they come with the first answer, or from what is running
	}
	host, port, path, err := splitAddress(address)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Address, err)
	}
	if path != "" {
		base.Address, base.Name = address, "unix:"+path
		return []peer.Server{base}, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		base.Address = netip.AddrPortFrom(ip, port).String()
		base.Name = base.Address
		return []peer.Server{base}, nil
	}
	addresses, err := lookUp(ctx, host, port, base.Line, known)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Address, err)
	}
	out := make([]peer.Server, len(addresses))
	for i, a := range addresses {
		out[i] = base
		out[i].ID, out[i].Address, out[i].Name = base.ID+"/"+a, a, a
	}
	return out, nil
}

// base is everything about the peers of s that does not hang on an address.
func (s *Server) base(address string) (peer.Server, error) {
	p := peer.Server{
		ID: cmp.Or(s.ID, address), Line: address,
		Weight: 1, MaxConns: s.MaxConns, MaxFails: 1, FailTimeout: 10 * time.Second,
		Backup: s.Backup, Down: s.Down, Drain: s.Drain,
		SlowStart: time.Duration(s.SlowStart), Route: s.Route, Probe: s.Probe == "tcp",
	}
	if s.Weight != nil {
		p.Weight = *s.Weight
	}
	if s.MaxFails != nil {
		p.MaxFails = *s.MaxFails
	}
	if s.FailTimeout != nil {
		p.FailTimeout = time.Duration(*s.FailTimeout)
	}
	if s.DrainTimeout != nil {
		p.CloseAfter = closeAfter(time.Duration(*s.DrainTimeout))
	}
	switch {
	case p.Weight < 1:
		return p, fmt.Errorf("weight %d: must be 1 or more; use down or drain to take a server out", p.Weight)
	case p.MaxConns < 0:
		return p, fmt.Errorf("max_conns %d: must not be negative", p.MaxConns)
	case p.MaxFails < 0:
		return p, fmt.Errorf("max_fails %d: must not be negative", p.MaxFails)
	case p.FailTimeout < 0:
		return p, fmt.Errorf("fail_timeout %s: must not be negative", p.FailTimeout)
	case p.CloseAfter < 0:
		return p, fmt.Errorf("drain_timeout %s: must not be negative", p.CloseAfter)
	case p.SlowStart < 0:
		return p, fmt.Errorf("slow_start %s: must not be negative", p.SlowStart)
	case s.Probe != "" && s.Probe != "tcp":
		return p, fmt.Errorf("probe %q: expected tcp", s.Probe)
	case p.Probe && p.MaxFails == 0:
		return p, errors.New("probe does nothing beside max_fails=0: the server is never taken out")
	}
	return p, nil
}

// closeAfter is d for the engine, where 0 means no limit.
func closeAfter(d time.Duration) time.Duration {
	if d == 0 {
		return 1
	}
	return d
}
