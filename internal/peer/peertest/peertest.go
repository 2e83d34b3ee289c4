// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package peertest has what tests of balancers need of the other guests of a
// group, since packages of balancers and trackers do not import each other.
package peertest

import (
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Start is the time at which tests begin.
var Start = time.Unix(1_700_000_000, 0)

// Group returns a group with that configuration. A server's address and name
// default to its id, its weight to 1; the tracker to Rules.
func Group(t testing.TB, c peer.Config, o peer.Options) *peer.Group {
	t.Helper()
	g := peer.NewGroup(o)
	Apply(t, g, c, Start)
	return g
}

// Apply brings c into force in g, with the defaults of Group.
func Apply(t testing.TB, g *peer.Group, c peer.Config, now time.Time) {
	t.Helper()
	servers := make([]peer.Server, len(c.Servers))
	for i, s := range c.Servers {
		if s.Address == "" {
			s.Address = s.ID
		}
		if s.Name == "" {
			s.Name = s.Address
		}
		s.Weight = max(1, s.Weight)
		servers[i] = s
	}
	c.Servers = servers
	if c.Tracker == nil {
		c.Tracker = Rules{}
	}
	if err := g.Apply(c, now); err != nil {
		t.Fatal(err)
	}
}

// Pick takes a lease in a new session; nil if there is none.
func Pick(g *peer.Group, o peer.SessionOptions, now time.Time) *peer.Lease {
	var s peer.Session
	s.Begin(g, o)
	l, err := s.Next(now)
	if err != nil {
		return nil
	}
	return l
}

// Get is a request that the peer it is given to answers at once. It returns
// the peer's id; "@" if there is none.
func Get(g *peer.Group, o peer.SessionOptions, now time.Time) string {
	l := Pick(g, o, now)
	if l == nil {
		return "@"
	}
	l.Done(peer.Success, now)
	return l.Peer().ID()
}

// Walk is a request that refuses says which peers refuse. It returns the ids
// of the peers in the order of the attempts, "@" where there was none.
func Walk(g *peer.Group, o peer.SessionOptions, refuses func(id string) bool, now time.Time) (ids []string, last *peer.Lease) {
	var s peer.Session
	s.Begin(g, o)
	policy := &peer.NextPolicy{Conditions: peer.DefaultConditions}
	for {
		l, err := s.Next(now)
		if err != nil {
			return append(ids, "@"), nil
		}
		ids = append(ids, l.Peer().ID())
		if !refuses(l.Peer().ID()) {
			return ids, l
		}
		l.Done(peer.Failed, now)
		if !s.MayRetry(policy, peer.OnError, peer.Progress{}, now) {
			return ids, nil
		}
	}
}

// Idle fails the test if a lease is still open.
func Idle(t testing.TB, g *peer.Group) {
	t.Helper()
	for _, s := range g.Snapshot(time.Now()) {
		if s.Conns != 0 {
			t.Errorf("conns of %s = %d at the end, want 0", s.Server.ID, s.Conns)
		}
	}
}

// RoundRobin is smooth weighted round robin.
type RoundRobin struct{}

func (RoundRobin) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return RoundRobin{} }
func (RoundRobin) Pick(pass *peer.Pass) *peer.Peer                     { return pass.RoundRobin() }
func (RoundRobin) Hinted(pass *peer.Pass, p *peer.Peer)                { pass.ChargeRoundRobin(p) }

// Rules is max_fails and fail_timeout with exact times.
type Rules struct{}

// Picked implements peer.Tracker.
func (Rules) Picked(p *peer.Peer, h *peer.Health, now time.Time) {
	if now.Sub(h.Checked) > p.Server().FailTimeout {
		h.Checked = now
		settle(p, h)
	}
}

// Done implements peer.Tracker.
func (Rules) Done(p *peer.Peer, h *peer.Health, o peer.Outcome, now time.Time) {
	s := p.Server()
	if o == peer.Failed {
		h.Fails++
		h.Accessed, h.Checked = now, now
		if s.MaxFails > 0 {
			h.Weight = max(0, h.Weight-int64(s.Weight/s.MaxFails))
		}
	} else if h.Accessed.Before(h.Checked) {
		h.Fails = 0
	}
	settle(p, h)
}

// Configured implements peer.Tracker.
func (Rules) Configured(p *peer.Peer, h *peer.Health, _ time.Time) { settle(p, h) }

func settle(p *peer.Peer, h *peer.Health) {
	s := p.Server()
	h.Until = time.Time{}
	if s.MaxFails > 0 && h.Fails >= s.MaxFails {
		h.Until = h.Checked.Add(s.FailTimeout)
	}
}
