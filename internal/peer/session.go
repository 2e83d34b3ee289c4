// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"net/netip"
	"time"
)

// ErrNoPeers is returned by Next when no peer of either list can be picked.
var ErrNoPeers = errors.New("no live upstreams")

// SessionOptions are what a front knows of a request or stream session.
type SessionOptions struct {
	// Tries limits the number of tries; 0: as many as there are peers.
	Tries int
	// Key is the hash key. Client is the client's address.
	Key    string
	Client netip.Addr
	// Usable, if set, is asked of every peer before each pick, under the
	// group's lock: a peer for which it is false is not eligible.
	Usable func(*Peer) bool
}

// Session is one walk over the peers of a group, for one request or stream
// session. It belongs to one goroutine; its leases do not. A Session is
// embedded in the front's own object and must not be copied after Begin.
type Session struct {
	group   *Group
	opts    SessionOptions
	started time.Time // of the first try
	tries   int       // left; guarded by the group's lock
	backup  bool      // walks the backup list
	tried   []*Peer
	state   [4]uint64
	pass    Pass

	firstTried [4]*Peer
	firstLease Lease
}

// Begin starts a walk (nginx's peer.init).
func (s *Session) Begin(g *Group, opts SessionOptions) {
	s.group, s.opts = g, opts
	s.tried = s.firstTried[:0]
	g.mu.Lock()
	s.tries = g.lists[0].usable + g.lists[1].usable
	g.mu.Unlock()
	if opts.Tries > 0 {
		s.tries = min(s.tries, opts.Tries)
	}
}

// Group returns the group that Begin was given.
func (s *Session) Group() *Group { return s.group }

// Next picks a peer and takes a slot on it (nginx's peer.get). The error is
// ErrNoPeers.
func (s *Session) Next(now time.Time) (*Lease, error) {
	g := s.group
	if s.started.IsZero() {
		s.started = now
	}
	g.mu.Lock()
	defer g.unlock()
	g.comebackLocked(now)
	if s.opts.Usable != nil {
		g.maskLocked(s.opts.Usable, now)
	}
	p := g.pickLocked(s, now)
	if p == nil {
		return nil, ErrNoPeers
	}
	l := &s.firstLease
	if l.peer != nil {
		l = new(Lease)
	}
	l.session, l.peer, l.Start = s, p, now
	l.CurrentWeight, l.TriesLeft = p.currentWeight(), max(0, s.tries-1)
	return l, nil
}

// pickLocked chooses a peer and books it.
func (g *Group) pickLocked(s *Session, now time.Time) *Peer {
	p := g.single
	switch {
	case p != nil:
		if c := p.conf.Load(); p.masked || !c.usable() || p.full(c) {
			return nil
		}
	case !s.backup:
		if p = g.lists[0].pick(s, now); p != nil {
			break
		}
		s.backup = true
		clear(s.tried)
		s.tried, s.state = s.tried[:0], [4]uint64{}
		fallthrough
	default:
		if p = g.lists[1].pick(s, now); p == nil {
			return nil
		}
	}
	p.picks++
	p.conns.Add(1)
	if p != g.single {
		s.tried = append(s.tried, p)
		before := p.health.Until
		g.tracker.Picked(p, &p.health, now)
		g.judgedLocked(p, before, nil, now)
	} else {
		p.refreshLocked(now)
	}
	return p
}
