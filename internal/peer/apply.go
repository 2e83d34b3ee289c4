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
		}
		seen[s.ID] = true
	}
	return nil
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
	defer g.unlock()
	g.method, g.tracker = c.Method, c.Tracker

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
		next[i] = &List{group: g, backup: was.backup, balancer: was.balancer}
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		p := old[place{s.ID, s.Address}]
		if p == nil {
			p = g.newPeerLocked(s)
		}
		delete(old, p.place())
		l := next[0]
		if s.Backup {
			l = next[1]
		}
		l.adopt(p, s)
		before := p.health.Until
		c.Tracker.Configured(p, &p.health, now)
		g.noteLocked(p, before, nil, now)
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
		l.rescale(prev[i].weight)
		l.rebuild(now)
		l.balancer = c.Method.NewBalancer(l, prev[i].balancer)
	}
	return nil
}

// place identifies a peer from one configuration to the next.
type place struct{ id, address string }

func (p *Peer) place() place { return place{p.ID(), p.Address()} }

func (g *Group) newPeerLocked(s *Server) *Peer {
	p := &Peer{group: g}
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
func (l *List) adopt(p *Peer, s *Server) {
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
	if s.usable() {
		l.usable++
	}
}

// rescale shrinks the current weights with the total weight: what was a fair
// lead among large weights would be a long one among small ones.
func (l *List) rescale(was int64) {
	if was <= l.weight {
		return
	}
	for _, p := range l.peers {
		p.rel = int64(float64(p.rel) * float64(l.weight) / float64(was))
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
