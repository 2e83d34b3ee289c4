// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options are fixed for the life of a group.
type Options struct {
	Name string
	// OnPeer is called, under the group's lock, with each new peer.
	OnPeer func(*Peer)
	// OnEvent is called, without the lock, after each change of state.
	OnEvent func(Event)
	// IntN returns a random number in [0, n); nil: math/rand/v2.
	IntN func(n int) int
}

// Group is a set of peers that serve the same thing. Its methods may be called
// from any goroutine.
type Group struct {
	opts  Options
	wants atomic.Pointer[Wants] // nil: nothing
	// patience is Config.QueueTimeout.
	patience atomic.Int64

	mu      sync.Mutex // guards everything below, and what Peer says it guards
	method  Method
	tracker Tracker
	lists   [2]*List
	members map[string]*Peer // by ID
	applied uint64           // how often a configuration came into force
	// countDown: servers that are down, draining or failed by a check count for
	// single.
	countDown bool
	single    *Peer // the only peer, exempt from passive health; nil if there are more
	checks    []*Check
	removed   []*Peer
	retain    bool // removed peers stay although nobody holds them
	secret    string
	guards    Guards
	queue     queue
	ramping   []*Peer // starting slowly
	back      returns
	events    []Event
	scratch   []*Peer
	parked    int  // leases
	lenient   bool // parked peers are eligible, for one pick

	// requests are the sessions that have had a peer, retries their further tries;
	// refused are the times that a session found none.
	requests, retries, refused uint64

	// Counted only for leases taken while there is a retry budget.
	active, retrying atomic.Int64
}

// EventKind says what happened to a peer.
type EventKind uint8

const (
	// ServerDown: the tracker disabled a peer that was up.
	ServerDown EventKind = iota
	// ServerUp: a peer that had been disabled is trusted again.
	ServerUp
	// ServerGone: the last lease of a removed peer has ended.
	ServerGone
	// ProbeWanted: the time out of a peer whose server wants a probe is over.
	// Answer with Group.Probed.
	ProbeWanted
	// ServerUnhealthy: a peer has failed an active check. ServerHealthy: it has
	// passed it again.
	ServerUnhealthy
	ServerHealthy
	// PanicBegins and PanicEnds: so few peers of a list are up that the judgement
	// of the tracker is ignored, and not any more. Peer is the one that tipped it.
	PanicBegins
	PanicEnds
	// ServerOut: a configuration or the API has removed a peer that is held, or
	// has set it down.
	ServerOut
	// ServerClosed: the time of a peer that is drained, set down or removed is over;
	// what it still held, Open, is being closed.
	ServerClosed
)

// Event is a change of a peer's state.
type Event struct {
	Kind EventKind
	Peer *Peer
	// Fails and Cause are set for ServerDown; Check, which is the name of the
	// check, and Cause for ServerUnhealthy.
	Fails int
	Cause error
	Check string
	// DownFor is set for ServerUp and, with Check, for ServerHealthy.
	DownFor time.Duration
	// Open is set for ServerClosed.
	Open int
}

// NewGroup returns a group without peers.
func NewGroup(o Options) *Group {
	if o.IntN == nil {
		o.IntN = rand.IntN
	}
	g := &Group{opts: o, members: make(map[string]*Peer)}
	g.lists[0] = &List{group: g, unit: 1}
	g.lists[1] = &List{group: g, backup: true, unit: 1}
	return g
}

// Name returns the group's name.
func (g *Group) Name() string { return g.opts.Name }

// unlockAt serves the queue and unlocks.
func (g *Group) unlockAt(now time.Time) {
	if g.queue.n > 0 {
		g.serveLocked(now)
	}
	g.unlock()
}

// unlock releases the lock and then delivers what happened under it.
func (g *Group) unlock() {
	events, served := g.events, g.queue.served
	if events == nil && served == nil {
		g.mu.Unlock()
		return
	}
	g.events, g.queue.served = nil, nil
	g.mu.Unlock()
	for _, w := range served {
		w.Ready()
	}
	if g.opts.OnEvent == nil {
		return
	}
	for _, e := range events {
		g.opts.OnEvent(e)
	}
}

// advanceLocked does what time alone brings: the ends of time outs, the
// progress of slow starts.
func (g *Group) advanceLocked(now time.Time) {
	for len(g.back) > 0 && now.After(g.back[0].at) {
		g.comebackLocked(g.back.pop(), now)
	}
	if len(g.ramping) > 0 {
		g.advanceRampsLocked(now)
	}
}

// comebackLocked refiles a peer whose time out is over.
func (g *Group) comebackLocked(c comeback, now time.Time) {
	p := c.peer
	if p.list == nil || !p.health.Until.Equal(c.until) {
		return
	}
	if s := p.conf.Load(); s.Probe && s.usable() && p.probe != probePassed {
		g.wantProbeLocked(p, c, now)
	}
	p.refreshLocked(now)
}

// maskLocked asks usable about every peer and refiles those that changed.
func (g *Group) maskLocked(usable func(*Peer) bool, now time.Time) {
	for _, l := range g.lists {
		for _, p := range l.peers {
			if masked := !usable(p); masked != p.masked {
				p.masked = masked
				if !masked {
					g.rampLocked(p, now)
				}
				p.refreshLocked(now)
			}
		}
	}
}

// judgedLocked is called after the tracker has changed p's health.
func (g *Group) judgedLocked(p *Peer, before time.Time, cause error, now time.Time) {
	g.noteLocked(p, before, cause, now)
	p.refreshLocked(now)
}

// noteLocked records that p is disabled, or is not any more.
func (g *Group) noteLocked(p *Peer, before time.Time, cause error, now time.Time) {
	until := p.health.Until
	switch {
	case until.IsZero():
		p.spared = p.spared && p.health.Fails > 0
		p.probe = probeNone
	case p.downSince.IsZero():
		if p.spared = !g.mayEject(p); p.spared {
			until = time.Time{}
			p.health.Until = until
		}
	}
	if !until.IsZero() && !until.Equal(before) {
		p.probe = probeNone
		g.back.push(comeback{until, until, p})
	}
	switch {
	case !until.IsZero() && p.downSince.IsZero():
		p.downSince = now
		g.events = append(g.events, Event{Kind: ServerDown, Peer: p, Fails: p.health.Fails, Cause: cause})
		if !p.ill() {
			g.outLocked(p, 1, now)
		}
	case until.IsZero() && !p.downSince.IsZero():
		g.events = append(g.events, Event{Kind: ServerUp, Peer: p, DownFor: now.Sub(p.downSince)})
		p.downSince = time.Time{}
		if !p.ill() {
			g.outLocked(p, -1, now)
		}
		g.rampLocked(p, now)
	}
}

// retireLocked forgets a removed peer that nobody holds any more.
func (g *Group) retireLocked(p *Peer) {
	if p.list != nil || p.conns.Load() > 0 || g.retain {
		return
	}
	if i := slices.Index(g.removed, p); i >= 0 {
		g.removed = slices.Delete(g.removed, i, i+1)
		g.events = append(g.events, Event{Kind: ServerGone, Peer: p})
	}
}

// Forget ends what Config.Retain began: removed peers are forgotten as soon as
// nobody holds them.
func (g *Group) Forget() {
	g.mu.Lock()
	defer g.unlock()
	g.retain = false
	g.forgetLocked()
}

// forgetLocked retires all removed peers that can be.
func (g *Group) forgetLocked() {
	for _, p := range slices.Clone(g.removed) {
		g.retireLocked(p)
	}
}
