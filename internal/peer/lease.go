// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"sync/atomic"
	"time"
)

// Lease holds a slot on a peer from the pick to Done.
type Lease struct {
	// Start is the time of the pick. CurrentWeight is the peer's current weight
	// after it; TriesLeft the number of tries that may follow this one.
	Start         time.Time
	CurrentWeight int64
	TriesLeft     int

	// Cause says why a lease ends with Failed; set before Done, for the log.
	Cause error
	// Reason is the condition that Failed stands for; set before Done.
	Reason Conditions

	hedged    bool // parked; guarded by the group's lock
	counted   bool // in Group.active
	retry     bool // in Group.retrying
	ofSession bool // what holds it is a stream session; guarded by the holders' lock

	session  *Session
	peer     *Peer
	observer Observer
	times    [metrics]time.Duration // guarded by the group's lock
	done     atomic.Bool
	held     atomic.Bool // it may be in the list of the peer's holders
	hold     holding     // guarded by the holders' lock
}

// Peer returns the peer that is held.
func (l *Lease) Peer() *Peer { return l.peer }

// Done gives the slot back with an outcome (nginx's peer.free). Only the
// first call does anything; it reports whether this was it.
func (l *Lease) Done(o Outcome, now time.Time) bool {
	if !l.done.CompareAndSwap(false, true) {
		return false
	}
	p := l.peer
	g := p.group
	if l.held.Load() {
		p.holders.remove(l)
	}
	if l.counted {
		g.active.Add(-1)
		if l.retry {
			g.retrying.Add(-1)
		}
	}
	quiet := o == None || o == Success
	if quiet && l.observer == nil && !p.attentive.Load() {
		p.conns.Add(-1)
		if p.attentive.Load() { // its configuration changed just now
			g.settle(p, now)
		}
		return true
	}
	g.mu.Lock()
	defer g.unlockAt(now)
	p.conns.Add(-1)
	g.doneLocked(l, o, now)
	return true
}

// Connected tells the tracker of a success without ending the lease: in stream,
// what counts is that the connection was established. An observer learns when.
func (l *Lease) Connected(now time.Time) {
	l.Observe(Connect, now.Sub(l.Start), now)
	if !l.peer.attentive.Load() {
		return
	}
	g := l.peer.group
	g.mu.Lock()
	defer g.unlockAt(now)
	g.outcomeLocked(l.peer, Success, nil, now)
}

// settle refiles p after a slot was given back without the lock.
func (g *Group) settle(p *Peer, now time.Time) {
	g.mu.Lock()
	defer g.unlockAt(now)
	p.refreshLocked(now)
	g.retireLocked(p)
}

func (g *Group) doneLocked(l *Lease, o Outcome, now time.Time) {
	p, s := l.peer, l.session
	s.unparkLocked(l, o)
	l.ended(o, now)
	switch {
	case o == None:
	case g.single == p && o != Stale:
		s.tries = 0
	case o != Stale:
		s.tries = max(0, s.tries-1)
	}
	if o == Stale {
		o = Failed
	}
	if o == Failed {
		p.reasons[ReasonOf(l.Reason)]++
	}
	g.outcomeLocked(p, o, l.Cause, now)
	g.retireLocked(p)
}

// outcomeLocked lets the tracker judge and files p by what it says.
func (g *Group) outcomeLocked(p *Peer, o Outcome, cause error, now time.Time) {
	if o == Failed {
		p.fails++
		p.lastFail = now
		p.lastErr = ""
		if cause != nil {
			p.lastErr = cause.Error()
		}
	}
	before := p.health.Until
	switch {
	case o == None:
		p.refreshLocked(now)
		return
	case g.single == p:
		p.health.Fails, p.health.Until = 0, time.Time{}
	default:
		g.tracker.Done(p, &p.health, o, now)
	}
	g.judgedLocked(p, before, cause, now)
}
