// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"sync/atomic"
	"time"
)

// Peer is one address of a server: its configuration and its live state.
// The exported methods may be called at any time, from anywhere, except where
// they say that they belong to guests (balancers and trackers), which run under
// the group's lock.
type Peer struct {
	// Aux belongs to the front that uses the group; Options.OnPeer sets it.
	Aux any

	group *Group
	conf  atomic.Pointer[Server]
	conns atomic.Int64

	// attentive makes Done take the lock although the outcome is a success:
	// a slot, a failure count or a removal may hang on it.
	attentive atomic.Bool

	// The rest is guarded by the group's lock.

	list   *List // nil once removed
	index  int   // place in the list; the earlier wins a tie
	health Health

	eligible bool // may be picked, as far as one request's tried set does not matter
	masked   bool // not available, says the front (SessionOptions.Usable)

	// rel is the current weight, less the running sum of the class it is in.
	rel   int64
	class *class
	slow  bool // eligible, effective weight below its ceiling: scanned apart

	downSince time.Time // zero: not disabled by the tracker
	picks     uint64
	fails     uint64
	lastFail  time.Time
	lastErr   string
}

// Health is what a Tracker knows of a peer. The tracker owns it; the engine
// reads Until and raises Weight.
type Health struct {
	// Fails is the number of failures counted.
	Fails int
	// Accessed is the time of the last failure. Checked is that, or the time of
	// the last selection after a quiet fail_timeout.
	Accessed, Checked time.Time
	// Until is the last moment at which the peer is out; zero: it is not.
	Until time.Time
	// Weight is the effective weight. The tracker lowers it; each round robin
	// pass that the peer takes part in raises it by one, up to the weight.
	Weight int64
}

// Server returns the configuration in force.
func (p *Peer) Server() *Server { return p.conf.Load() }

// ID, Address and Name are those of the peer's Server; they never change.
func (p *Peer) ID() string      { return p.conf.Load().ID }
func (p *Peer) Address() string { return p.conf.Load().Address }
func (p *Peer) Name() string    { return p.conf.Load().Name }

// Conns is the number of open leases.
func (p *Peer) Conns() int64 { return p.conns.Load() }

// Index is the peer's place in its list. For guests.
func (p *Peer) Index() int { return p.index }

// currentWeight is nginx's current_weight.
func (p *Peer) currentWeight() int64 {
	if p.class != nil {
		return p.rel + p.class.sum
	}
	return p.rel
}

// mayPick is the peer's own eligibility: everything but the tried set.
func (p *Peer) mayPick(now time.Time) bool {
	s := p.conf.Load()
	switch {
	case p.list == nil || p.masked || !s.usable():
		return false
	case p.full(s):
		return false
	}
	return p.health.Until.IsZero() || now.After(p.health.Until)
}

func (p *Peer) full(s *Server) bool {
	return s.MaxConns > 0 && p.conns.Load() >= int64(s.MaxConns)
}

// refreshLocked files the peer anew after anything about it has changed.
func (p *Peer) refreshLocked(now time.Time) {
	ok := p.mayPick(now)
	if p.list != nil {
		p.list.file(p, ok)
	}
	p.eligible = ok
	p.attentive.Store(p.list == nil || p.conf.Load().MaxConns > 0 ||
		p.health.Fails > 0 || !p.health.Until.IsZero())
}
