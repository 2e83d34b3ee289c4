// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Aborter is what holds a lease and can be ended by anybody. Abort may be called
// more than once, and late: when the lease has just ended. It must not wait.
type Aborter interface{ Abort() }

// holders are the open leases of a peer that said how they can be ended.
type holders struct {
	mu    sync.Mutex // guards the list: last, and newer and older of its leases
	last  *Lease     // the newest
	count int
}

// holding is a lease's place in the list of its peer.
type holding struct {
	newer, older *Lease
	by           Aborter // nil: not in the list
}

// Hold says how the lease can be ended early: a is aborted when the time of its
// drained or removed peer is over and, if it stands for the session of a stream,
// when the peer fails an active check that closes sessions. The owner of the
// lease calls it once.
func (l *Lease) Hold(a Aborter, session bool) {
	p, h := l.peer, &l.peer.holders
	l.held.Store(true)
	h.mu.Lock()
	if l.done.Load() { // Done saw held, or it did not and this sees done
		h.mu.Unlock()
		return
	}
	l.hold, l.ofSession = holding{older: h.last, by: a}, session
	if h.last != nil {
		h.last.hold.newer = l
	}
	h.last = l
	h.count++
	h.mu.Unlock()
	if p.overdue.Load() { // since a moment ago
		a.Abort()
	}
}

// remove takes l from the list, if it is in it.
func (h *holders) remove(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := l.hold
	if x.by == nil {
		return
	}
	if x.newer != nil {
		x.newer.hold.older = x.older
	} else {
		h.last = x.older
	}
	if x.older != nil {
		x.older.hold.newer = x.newer
	}
	l.hold = holding{}
	h.count--
}

// list returns who holds the peer; sessions only, if so asked.
func (h *holders) list(sessions bool) (out []Aborter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := h.last; l != nil; l = l.hold.older {
		if l.ofSession || !sessions {
			out = append(out, l.hold.by)
		}
	}
	return out
}

// A peer that is drained, set down or removed may finish what it holds for
// Server.CloseAfter; then it is overdue: what is open is closed, and sticky
// hints do not reach it any more.

// inServiceLocked notes whether the configuration lets p serve new sessions.
func (p *Peer) inServiceLocked(serves bool, now time.Time) {
	switch {
	case serves:
		p.left, p.within = time.Time{}, 0
		p.overdue.Store(false)
	case p.left.IsZero():
		p.left = now
	}
}

// closeBy is when what p holds will be closed; zero: never.
func (p *Peer) closeBy() time.Time {
	after := cmp.Or(p.within, p.conf.Load().CloseAfter)
	if p.left.IsZero() || after == 0 {
		return time.Time{}
	}
	return p.left.Add(after)
}

// CloseAfter changes how long p may finish what it holds, this time: it does
// nothing unless p is drained, down or removed, and ends when it is back.
func (g *Group) CloseAfter(p *Peer, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !p.left.IsZero() {
		p.within = d
	}
}

// CloseOverdue closes what overdue peers hold and returns when it has to be
// called again; zero: not before the configuration changes.
func (g *Group) CloseOverdue(now time.Time) (next time.Time) {
	var open []Aborter
	next = g.overdue(now, &open)
	for _, a := range open {
		a.Abort()
	}
	return next
}

func (g *Group) overdue(now time.Time, open *[]Aborter) (next time.Time) {
	g.mu.Lock()
	defer g.unlockAt(now)
	for _, p := range slices.Concat(g.lists[0].peers, g.lists[1].peers, g.removed) {
		by := p.closeBy()
		over := !by.IsZero() && !now.Before(by)
		if !over && !by.IsZero() && (next.IsZero() || by.Before(next)) {
			next = by
		}
		if p.overdue.Swap(over) == over {
			continue
		}
		if over {
			held := p.holders.list(false)
			*open = append(*open, held...)
			if len(held) > 0 {
				g.events = append(g.events, Event{Kind: ServerClosed, Peer: p, Open: len(held)})
			}
		}
		p.refreshLocked(now)
	}
	return next
}

// NextClose returns when CloseOverdue has something to do; zero: not before the
// configuration changes.
func (g *Group) NextClose(now time.Time) (next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, list := range [...][]*Peer{g.lists[0].peers, g.lists[1].peers, g.removed} {
		for _, p := range list {
			by := p.closeBy()
			switch over := p.overdue.Load(); {
			case over == (!by.IsZero() && !now.Before(by)):
				if over || by.IsZero() {
					continue
				}
			default:
				return now
			}
			if next.IsZero() || by.Before(next) {
				next = by
			}
		}
	}
	return next
}
