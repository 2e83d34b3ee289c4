// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"time"
)

// Method makes the balancers of a group, one for each list.
type Method interface {
	// NewBalancer returns the balancer of l as it now stands. It is called,
	// under the group's lock, whenever the members of l, their order or their
	// configuration have changed; old is what it returned for this list before,
	// nil at first, and may be changed and returned.
	NewBalancer(l *List, old Balancer) Balancer
}

// Wants is what a method needs to know of each session.
type Wants struct {
	// Key is the text of which the front makes the session's key, with
	// placeholders; empty: none.
	Key string
	// Client: the address of the client.
	Client bool
}

// Wanter is a Method that wants to know something of each session.
type Wanter interface {
	Wants() Wants
}

// Wants returns what the group's method wants to know of a session that is to
// begin.
func (g *Group) Wants() Wants {
	if w := g.wants.Load(); w != nil {
		return *w
	}
	return Wants{}
}

// Balancer chooses among the peers of one list.
type Balancer interface {
	// Pick returns a peer for which pass.Eligible holds, or nil if there is
	// none. It runs under the group's lock.
	Pick(pass *Pass) *Peer
}

// Pass is what a balancer sees of a session while it picks.
type Pass struct {
	s   *Session
	l   *List
	now time.Time
}

// List is the list to choose from.
func (p *Pass) List() *List { return p.l }

// Now is the time of the pick.
func (p *Pass) Now() time.Time { return p.now }

// Eligible reports whether x may be picked: it is not down, draining, disabled
// or full, and the walk has not tried it.
func (p *Pass) Eligible(x *Peer) bool { return x.eligible && !contains(p.s.tried, x) }

// First reports whether the walk has not tried any peer of this list.
func (p *Pass) First() bool { return len(p.s.tried) == 0 }

// RoundRobin picks by one pass of smooth weighted round robin over all
// eligible peers; nil if there is none.
func (p *Pass) RoundRobin() *Peer { return p.l.roundRobin(p.s.tried) }

// RoundRobinAmong picks by one pass over some eligible peers, in list order.
// It does not keep the slice.
func (p *Pass) RoundRobinAmong(some []*Peer) *Peer {
	if len(some) == 0 {
		return nil
	}
	return p.l.roundRobinAmong(some)
}

// Scratch returns an empty slice with room for every peer of the list, to be
// used during this Pick only.
func (p *Pass) Scratch() []*Peer {
	g := p.l.group
	if cap(g.scratch) < len(p.l.peers) {
		g.scratch = make([]*Peer, 0, len(p.l.peers))
	}
	return g.scratch[:0]
}

// Key is the session's hash key; empty if it has none.
func (p *Pass) Key() string { return p.s.opts.Key }

// Client is the address of the client; the zero Addr if it has none (a unix
// socket).
func (p *Pass) Client() netip.Addr { return p.s.opts.Client }

// State is memory of the balancer's own that stays with the session from try to
// try, in its way over one list. It is zero at first.
func (p *Pass) State() *[4]uint64 { return &p.s.state }

// IntN returns a random number in [0, n).
func (p *Pass) IntN(n int) int { return p.l.group.opts.IntN(n) }
