// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"slices"
	"time"
)

// Hedge picks a second peer while the connection to the first one, held by
// slow, is still not there, and parks slow. Both leases are open then, each with
// an outcome of its own. The error is ErrNoPeers if there is no other peer, no
// try left for it, or slow has ended or is parked; then nothing has changed.
func (s *Session) Hedge(slow *Lease, now time.Time) (*Lease, error) {
	g, p := s.group, slow.peer
	g.mu.Lock()
	defer g.unlockAt(now)
	if g.single != nil || s.tries-int(s.hedging) < 2 {
		return nil, ErrNoPeers
	}
	g.advanceLocked(now)
	// From here Done waits for the lock, if it has not gone by already.
	p.attentive.Store(true)
	defer p.refreshLocked(now)
	if slow.hedged || slow.done.Load() {
		return nil, ErrNoPeers
	}
	l, err := g.leaseLocked(s, false, now) // nothing is sent twice: no retry
	if err != nil {
		return nil, err
	}
	l.TriesLeft = s.tries - int(s.hedging) - 2
	s.parkLocked(slow)
	return l, nil
}

// Park says that nobody waits for the connection that l stands for, which is
// still being made: l may end after the session does. Until it ends or is
// resumed its peer is not eligible, but for Next when there is no other: to wait
// for a slow server is better than to fail, when all of them are slow for a
// moment. It reports false if l has ended or is parked already.
func (s *Session) Park(l *Lease, now time.Time) bool {
	g, p := s.group, l.peer
	g.mu.Lock()
	defer g.unlockAt(now)
	p.attentive.Store(true) // as in Hedge
	defer p.refreshLocked(now)
	if l.hedged || l.done.Load() {
		return false
	}
	s.parkLocked(l)
	return true
}

func (s *Session) parkLocked(l *Lease) {
	l.hedged = true
	l.peer.hedges++
	s.hedging++
	s.group.parked++
}

// Resume makes l, which was parked, the session's lease again: its connection
// is there.
func (s *Session) Resume(l *Lease, now time.Time) {
	g := s.group
	g.mu.Lock()
	defer g.unlockAt(now)
	if l.done.Load() {
		return
	}
	s.resumeLocked(l)
	l.peer.refreshLocked(now)
}

func (s *Session) resumeLocked(l *Lease) {
	if l.hedged {
		l.hedged = false
		l.peer.hedges--
		s.hedging--
		s.group.parked--
	}
}

// unparkLocked is called when l ends. A peer that was parked and let go without
// having been sent anything counts as not tried.
func (s *Session) unparkLocked(l *Lease, o Outcome) {
	if l.hedged && o == None {
		if i := slices.Index(s.tried, l.peer); i >= 0 {
			s.tried = slices.Delete(s.tried, i, i+1)
		}
	}
	s.resumeLocked(l)
}

// lastResortLocked picks among parked peers as well, once no other was found.
func (g *Group) lastResortLocked(s *Session, now time.Time) (*Lease, error) {
	var parked []*Peer
	for _, p := range g.peersLocked() {
		if p.hedges > 0 {
			parked = append(parked, p)
		}
	}
	g.lenient = true
	for _, p := range parked {
		p.refreshLocked(now)
	}
	l, err := g.leaseLocked(s, s.picked, now)
	g.lenient = false
	for _, p := range parked {
		p.refreshLocked(now)
	}
	return l, err
}

// MayHedge reports whether the time for further tries is not over.
func (s *Session) MayHedge(n *NextPolicy, now time.Time) bool {
	return n.Timeout <= 0 || now.Sub(s.started) < n.Timeout
}

// MayAwait reports whether, after a try that ended with event, the request may
// go over the connection of a parked lease. Without anything sent it always may.
func (s *Session) MayAwait(n *NextPolicy, event Conditions, p Progress, now time.Time) bool {
	return !p.Sent || s.allowed(n, event, p, now)
}
