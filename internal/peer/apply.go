// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Config is all of a group that a configuration says.
type Config struct {
	Servers []Server
	Method  Method
	Tracker Tracker
	// SingleCountsDown lets a server that is down or draining end the exemption
	// of the only other server from passive health, as in nginx.
	SingleCountsDown bool
	// Retain keeps the state of peers that go, held or not, until Forget: a
	// configuration that may yet be taken back names them again.
	Retain bool

	// Secret, if not empty, is the key of the HMAC from which the sids of peers
	// without a route are made; else they are nginx's, an MD5.
	Secret string
	// Queue is how many sessions may wait for a peer.
	Queue  int
	Guards Guards
	// RandomStart begins the cycle of a new group at a random place.
	RandomStart bool
}

// Validate reports the first thing in c that no group can have.
func (c *Config) Validate() error {
	seen := make(map[string]bool, len(c.Servers))
	for i := range c.Servers {
		s := &c.Servers[i]
		switch {
		case seen[s.ID]:
			return fmt.Errorf("server %q: duplicate id: give one of them another", s.ID)
		case s.Weight < 1:
			return fmt.Errorf("server %q: weight %d: must be at least 1; use down or drain to take a server out", s.ID, s.Weight)
		case s.MaxConns < 0:
			return fmt.Errorf("server %q: max_conns %d: must not be negative", s.ID, s.MaxConns)
		case s.MaxFails < 0:
			return fmt.Errorf("server %q: max_fails %d: must not be negative", s.ID, s.MaxFails)
		case s.FailTimeout < 0:
			return fmt.Errorf("server %q: fail_timeout %s: must not be negative", s.ID, s.FailTimeout)
		case s.SlowStart < 0:
			return fmt.Errorf("server %q: slow_start %s: must not be negative", s.ID, s.SlowStart)
		}
		seen[s.ID] = true
	}
	if c.Queue < 0 {
		return fmt.Errorf("queue %d: must not be negative", c.Queue)
	}
	return c.Guards.validate()
}

// Apply brings a configuration into force. Peers are matched by ID and address;
// those that stay keep their state and their leases, those that go finish
// what they hold, and one that comes back while it is still held is the same
// peer as before, so that max_conns stays exact. Nothing is changed when the configuration is not valid.
func (g *Group) Apply(c Config, now time.Time) error {
	if err := c.Validate(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.unlockAt(now)
	fresh := g.method == nil
	g.method, g.tracker, g.guards = c.Method, c.Tracker, c.Guards
	g.queue.limit = c.Queue
	rename := g.secret != c.Secret
	g.secret = c.Secret

	old := make(map[place]*Peer)
	for _, p := range g.removed {
		old[p.place()] = p
	}
	for _, l := range g.lists {
		l.flatten()
		for _, p := range l.peers {
			old[p.place()] = p
		}
	}
	var next [2]*List
	for i, was := range g.lists {
		next[i] = &List{group: g, backup: was.backup, unit: 1, panics: was.panics}
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		p := old[place{s.ID, s.Address}]
		comes := !fresh // back, or new among others
		if p != nil {
			comes = !p.conf.Load().usable()
		} else {
			p = g.newPeerLocked(s)
		}
		delete(old, p.place())
		l := next[0]
		if s.Backup {
			l = next[1]
		}
		l.adopt(p, s, rename)
		if comes && s.usable() {
			g.rampLocked(p, now)
		}
	}
	prev := g.lists
	g.lists = next
	g.retain = c.Retain
	g.removed = slices.DeleteFunc(g.removed, func(p *Peer) bool { return p.list != nil })
	for _, l := range prev {
		for _, p := range l.peers {
			if old[p.place()] == p {
				p.list, p.eligible = nil, false
				p.attentive.Store(true)
				g.removed = append(g.removed, p)
			}
		}
	}
	g.forgetLocked()
	g.single = g.onlyPeer(c.SingleCountsDown)
	for i, l := range next {
		l.settle(prev[i], now)
		l.balancer = c.Method.NewBalancer(l, prev[i].balancer)
		l.hinter, _ = l.balancer.(Hinter)
		l.observer, _ = l.balancer.(Observer)
		if fresh && c.RandomStart {
			l.spin()
		}
	}
	return nil
}

// place identifies a peer from one configuration to the next.
type place struct{ id, address string }

func (p *Peer) place() place { return place{p.ID(), p.Address()} }

// settle takes over from the list before, once all members are there.
func (l *List) settle(prev *List, now time.Time) {
	g := l.group
	l.rescale(prev)
	for _, p := range l.peers {
		before := p.health.Until
		g.tracker.Configured(p, &p.health, now)
		g.noteLocked(p, before, nil, now)
	}
	g.advanceLocked(now)
	if len(l.peers) > 0 {
		g.panicLocked(l.peers[0], now)
	}
	l.rebuild(now)
}

func (g *Group) newPeerLocked(s *Server) *Peer {
	p := &Peer{group: g}
	p.setSID(s, g.secret)
	p.health.Weight = int64(s.Weight)
	p.conf.Store(s)
	if g.opts.OnPeer != nil {
		g.opts.OnPeer(p)
	}
	return p
}

// adopt makes p, which may be new, a member with configuration s. An
// effective weight that was whole stays whole; one that was lowered keeps its
// share.
func (l *List) adopt(p *Peer, s *Server, rename bool) {
	if rename || p.conf.Load().Route != s.Route {
		p.setSID(s, l.group.secret)
	}
	was, is := int64(p.conf.Load().Weight), int64(s.Weight)
	if h := &p.health; h.Weight == was {
		h.Weight = is
	} else if was != is {
		h.Weight = min(is, h.Weight*is/was)
	}
	if p.list != nil && p.list.backup != l.backup {
		p.rel = 0
	}
	p.conf.Store(s)
	p.list, p.index = l, len(l.peers)
	l.peers = append(l.peers, p)
	l.weight += is
	p.eligible, p.up = false, false
	if s.usable() {
		l.usable++
		if !p.downSince.IsZero() {
			l.out++
		}
	}
	if s.SlowStart > 0 {
		l.unit = rampSteps
	}
}

// rescale brings the current weights to the list's unit, and shrinks them with
// the total weight: what was a fair lead among large weights would be a long
// one among small ones.
func (l *List) rescale(was *List) {
	for _, p := range l.peers {
		p.ceil = int64(p.conf.Load().Weight) * l.unit
		if l.unit != was.unit {
			p.rel = p.rel * l.unit / was.unit
		}
		if was.weight > l.weight {
			p.rel = int64(float64(p.rel) * float64(l.weight) / float64(was.weight))
		}
	}
}

// rebuild files all peers, in the order of the wheel, so that each goes to the
// end of its class.
func (l *List) rebuild(now time.Time) {
	order := slices.Clone(l.peers)
	slices.SortFunc(order, func(p, q *Peer) int {
		return cmp.Or(cmp.Compare(q.rel, p.rel), cmp.Compare(p.index, q.index))
	})
	for _, p := range order {
		p.refreshLocked(now)
	}
}

// onlyPeer returns the peer of a group that has but one.
func (g *Group) onlyPeer(countDown bool) *Peer {
	var only *Peer
	for _, l := range g.lists {
		for _, p := range l.peers {
			switch {
			case !countDown && !p.conf.Load().usable():
			case l.backup || only != nil:
				return nil
			default:
				only = p
			}
		}
	}
	return only
}
