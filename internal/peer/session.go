// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// ErrNoPeers is returned by Next when no peer of either list can be picked.
var ErrNoPeers = errors.New("no live upstreams")

// ErrRetryBudget is returned by Next when a further try would exceed the
// group's retry budget. It wraps ErrNoPeers.
var ErrRetryBudget = fmt.Errorf("%w: retry budget used up", ErrNoPeers)

// SessionOptions are what a front knows of a request or stream session.
type SessionOptions struct {
	// Tries limits the number of tries; 0: as many as there are peers.
	Tries int
	// Key is the hash key. Client is the client's address.
	Key    string
	Client netip.Addr
	// Hint is the sid of the peer that a sticky session is bound to.
	Hint string
	// Usable, if set, is asked of every peer before each pick, under the
	// group's lock: a peer for which it is false is not eligible.
	Usable func(*Peer) bool
	// Rounds begins again with all peers when no other is left, for fronts that
	// decide by time how often to try. nginx asks each once.
	Rounds bool
}

// Session is one walk over the peers of a group, for one request or stream
// session. It belongs to one goroutine; its leases do not. A Session is
// embedded in the front's own object and must not be copied after Begin.
type Session struct {
	group   *Group
	opts    SessionOptions
	started time.Time // of the first try
	tries   int       // left; guarded by the group's lock
	hedging int32     // leases that are parked; guarded by the group's lock
	picked  bool      // has had a peer
	backup  bool      // walks the backup list
	tried   []*Peer
	state   [4]uint64

	firstTried [2]*Peer
	firstLease Lease
}

// Begin starts a walk (nginx's peer.init).
func (s *Session) Begin(g *Group, opts SessionOptions) {
	s.group, s.opts = g, opts
	s.tried = s.firstTried[:0]
}

// Group returns the group that Begin was given.
func (s *Session) Group() *Group { return s.group }

// Next picks a peer and takes a slot on it (nginx's peer.get). The error is
// ErrNoPeers or ErrRetryBudget.
func (s *Session) Next(now time.Time) (*Lease, error) {
	g := s.group
	g.mu.Lock()
	defer g.unlockAt(now)
	l, err := g.nextLocked(s, now)
	if err != nil {
		g.refused++
	}
	return l, err
}

// nextLocked picks for a session that asks now, after those who wait.
func (g *Group) nextLocked(s *Session, now time.Time) (*Lease, error) {
	if s.started.IsZero() {
		s.started = now
	}
	g.advanceLocked(now)
	if s.opts.Usable != nil {
		g.maskLocked(s.opts.Usable, now)
	}
	if g.queue.n > 0 {
		g.serveLocked(now)
	}
	l, err := g.leaseLocked(s, s.picked, now)
	if err == ErrNoPeers && g.parked > 0 {
		return g.lastResortLocked(s, now)
	}
	return l, err
}

// leaseLocked picks and makes the lease; retry says that it is a further try.
func (g *Group) leaseLocked(s *Session, retry bool, now time.Time) (*Lease, error) {
	if retry && !g.mayRetryLocked(1) {
		return nil, ErrRetryBudget
	}
	p := g.pickLocked(s, now)
	if p == nil && s.opts.Rounds && s.picked {
		clear(s.tried)
		s.tried, s.backup, s.state = s.tried[:0], false, [4]uint64{}
		p = g.pickLocked(s, now)
	}
	if p == nil {
		return nil, ErrNoPeers
	}
	l := &s.firstLease
	if l.peer != nil {
		l = new(Lease)
	}
	l.session, l.peer, l.Start = s, p, now
	if g.guards.RetryBudget > 0 {
		l.counted, l.retry = true, retry
		g.active.Add(1)
		if retry {
			g.retrying.Add(1)
		}
	}
	if retry {
		p.retries++
		g.retries++
	}
	if !s.picked {
		s.picked = true
		g.requests++
		s.tries = g.lists[0].usable + g.lists[1].usable
		if s.opts.Tries > 0 {
			s.tries = min(s.tries, s.opts.Tries)
		}
	}
	l.CurrentWeight, l.TriesLeft = p.currentWeight(), max(0, s.tries-1)
	if o := p.list.observer; o != nil {
		l.observer = o
		o.Started(l, now)
	}
	return l, nil
}

// pickLocked chooses a peer and books it. Where none can be picked the session
// is left as it was: it may wait and ask again.
func (g *Group) pickLocked(s *Session, now time.Time) *Peer {
	if g.single != nil {
		if p := g.pickSingleLocked(s, now); p != nil || s.opts.Hint == "" {
			return p
		}
		// It cannot be picked; the hint may name a draining backup.
	}
	if !s.backup {
		state := s.state
		if p := g.lists[0].pick(s, now); p != nil {
			g.bookLocked(s, p, now)
			return p
		}
		s.state = state
		if len(g.lists[1].peers) == 0 {
			return nil
		}
	}
	tried, state := s.tried, s.state
	if !s.backup {
		s.tried, s.state = nil, [4]uint64{}
	}
	p := g.lists[1].pick(s, now)
	if p == nil {
		s.tried, s.state = tried, state
		return nil
	}
	if !s.backup {
		s.backup = true
		clear(tried)
		s.tried = tried[:0]
	}
	g.bookLocked(s, p, now)
	return p
}

// pickSingleLocked picks in a group with one usable peer. A sticky hint may still
// name a draining one.
func (g *Group) pickSingleLocked(s *Session, now time.Time) *Peer {
	p := g.single
	if s.opts.Hint != "" && !s.backup {
		if q := g.lists[0].hinted(s, now); q != nil && q != p {
			g.bookLocked(s, q, now)
			return q
		}
	}
	c := p.conf.Load()
	if p.masked || p.barred() || c.Down || p.overdue.Load() || c.Drain && s.opts.Hint != p.SID() || p.full(c) || p.parked() {
		return nil
	}
	p.picks++
	p.selected = now.UnixNano()
	p.conns.Add(1)
	if !contains(s.tried, p) { // it may not be the only one for long
		s.tried = append(s.tried, p)
	}
	p.refreshLocked(now)
	return p
}

// bookLocked takes a slot on p, which is not a single peer.
func (g *Group) bookLocked(s *Session, p *Peer, now time.Time) {
	p.picks++
	p.selected = now.UnixNano()
	p.conns.Add(1)
	s.tried = append(s.tried, p)
	before := p.health.Until
	g.tracker.Picked(p, &p.health, now)
	if p.health.Until == before && before.IsZero() && !p.limited {
		return // nothing about its eligibility has changed
	}
	g.judgedLocked(p, before, nil, now)
}
