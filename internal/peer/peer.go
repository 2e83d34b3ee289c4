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
	// What a pick needs stands together: at ten thousand peers the time of a pick
	// is that of reading a peer from memory.
	group *Group
	conf  atomic.Pointer[Server]
	conns atomic.Int64

	// attentive makes Done take the lock although the outcome is a success:
	// a slot, a failure count or a removal may hang on it.
	attentive atomic.Bool

	// The rest is guarded by the group's lock, but for sid.

	eligible bool       // may be picked, as far as one request's tried set does not matter
	slow     bool       // eligible, gains less than its whole weight: scanned apart
	up       bool       // not down, draining, masked or disabled; full or not
	masked   bool       // not available, says the front (SessionOptions.Usable)
	spared   bool       // failed often enough to be out, but max_unavailable forbids it
	probe    probeState // matters once a time out is over, if the server wants a probe
	limited  bool       // the server has max_conns

	list  *List // nil once removed
	index int   // place in the list; the earlier wins a tie
	// rel is the current weight, less the running sum of the class it is in.
	rel int64
	// failTimeout is the server's.
	failTimeout time.Duration
	class       *class
	// ceil is the weight in the list's unit, less while the peer starts slowly,
	// which began at rampFrom (zero: it does not).
	ceil int64

	// Memo belongs to the balancer, under the group's lock, and stays with the
	// peer through changes of the configuration. A balancer must expect to
	// find what another method has left there.
	Memo any
	// Score is the balancer's, too: what a pick that looks at every peer reads of
	// each.
	Score Score

	picks uint64
	// selected is when the peer was last picked, in ns.
	selected int64
	health   Health

	rampFrom  time.Time
	hedges    int       // dials that are so slow that another peer was asked as well
	downSince time.Time // zero: not disabled by the tracker
	fails     uint64
	retries   uint64 // picks that were not the first of their session
	reasons   Reasons
	lastFail  time.Time
	lastErr   string
	left      time.Time     // when the configuration took it out of service; zero: it serves
	within    time.Duration // to finish in, this time; 0: the server's CloseAfter
	verdicts  []verdict     // why active checks have it out; few
	mark      uint64        // of the Apply that last saw the peer
	sid       atomic.Pointer[string]

	holders holders
	// overdue: it should hold nothing any more. Written under the group's lock.
	overdue atomic.Bool

	// Stats is counted by the fronts.
	Stats Stats

	// Aux belongs to the front that uses the group; Options.OnPeer sets it.
	Aux any
}

// Score is a value that holds until a time in ns. The zero value does not hold.
type Score struct{ Value, Until int64 }

// Health is what a Tracker knows of a peer. The tracker owns it; the engine
// reads Until and raises Weight.
type Health struct {
	// Weight is the effective weight. The tracker lowers it; each round robin
	// pass that the peer takes part in raises it by one, up to the weight.
	Weight int64
	// Until is the last moment at which the peer is out; zero: it is not.
	Until time.Time
	// Checked is the time of the last failure, or of the last selection after a
	// quiet fail_timeout. Accessed is the time of the last failure.
	Checked, Accessed time.Time
	// Fails is the number of failures counted.
	Fails int
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

// Weight is what the peer counts for in comparisons: its configured weight,
// less while it starts slowly. The unit is common to a list. For guests.
func (p *Peer) Weight() int64 { return p.ceil }

// Checked is the time of the last failure, or of the last selection after a
// quiet fail_timeout. For guests.
func (p *Peer) Checked() time.Time { return p.health.Checked }

// FailTimeout is that of the server. It stands with what a pick reads anyway. For
// guests.
func (p *Peer) FailTimeout() time.Duration { return p.failTimeout }

// configure brings a copy of s into force.
func (p *Peer) configure(s *Server) {
	own := *s
	p.conf.Store(&own)
	p.failTimeout, p.limited = s.FailTimeout, s.MaxConns > 0
}

// unitWeight is the current weight in the list's unit.
func (p *Peer) unitWeight() int64 {
	if p.class != nil {
		return p.rel + p.class.sum
	}
	return p.rel
}

// currentWeight is nginx's current_weight.
func (p *Peer) currentWeight() int64 {
	if p.list != nil && p.list.unit != 1 {
		return p.unitWeight() / p.list.unit
	}
	return p.unitWeight()
}

// mayPick is the peer's own eligibility: everything but the tried set.
func (p *Peer) mayPick(now time.Time) bool {
	return !p.conf.Load().Drain && p.mayHint(now)
}

// mayHint is mayPick for a sticky hint, which reaches draining peers too.
func (p *Peer) mayHint(now time.Time) bool {
	s := p.conf.Load()
	return p.list != nil && !p.masked && !s.Down && !p.overdue.Load() && !p.parked() && !p.full(s) && p.healthy(s, now)
}

// healthy reports whether checks and the tracker allow the peer, which needs a
// list.
func (p *Peer) healthy(s *Server, now time.Time) bool {
	switch {
	case p.barred():
		return false
	case p.health.Until.IsZero() || p.list.panics:
		return true
	case !now.After(p.health.Until):
		return false
	}
	return !s.Probe || p.probe == probePassed
}

// parked reports whether connecting to the peer is slow, where that matters.
func (p *Peer) parked() bool { return p.hedges > 0 && !p.group.lenient }

func (p *Peer) full(s *Server) bool {
	return s.MaxConns > 0 && p.conns.Load() >= int64(s.MaxConns)
}

// refreshLocked files the peer anew after anything about it has changed.
func (p *Peer) refreshLocked(now time.Time) {
	ok, s := p.mayPick(now), p.conf.Load()
	if p.list != nil {
		p.list.file(p, ok)
		p.list.count(p, ok, s.usable() && !p.masked && p.healthy(s, now))
	}
	p.eligible = ok
	p.attentive.Store(p.list == nil || s.MaxConns > 0 || p.hedges > 0 ||
		p.health.Fails > 0 || !p.health.Until.IsZero())
}
