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
	// Secret, if not empty, is the key of the HMAC from which the sids of peers
	// without a route are made; else they are nginx's, an MD5.
	Secret string
	// Queue is how many sessions may wait for a peer; QueueTimeout is how long
	// the fronts let one wait.
	Queue        int
	QueueTimeout time.Duration
	Guards       Guards
	// RandomStart begins the cycle of a new group at a random place.
	RandomStart bool
	// Retain keeps the state of peers that go, held or not, until Forget: a
	// configuration that may yet be taken back names them again.
	Retain bool
}

// Validate reports the first thing in c that no group can have.
func (c *Config) Validate() error {
	seen := make(map[string]bool, len(c.Servers))
	for i := range c.Servers {
		s := &c.Servers[i]
		if seen[s.ID] {
			return s.duplicate()
		}
		seen[s.ID] = true
	}
	return c.validate()
}

// validate is Validate but for duplicates.
func (c *Config) validate() error {
	for i := range c.Servers {
		if err := c.Servers[i].validate(); err != nil {
			return err
		}
	}
	if c.Queue < 0 {
		return fmt.Errorf("queue %d: must not be negative", c.Queue)
	}
	return c.Guards.validate()
}

func (s *Server) duplicate() error {
	return fmt.Errorf("server %q: duplicate id: give one of them another", s.ID)
}

func (s *Server) validate() error {
	switch {
	case s.Weight < 1:
		return fmt.Errorf("server %q: weight %d: must be at least 1; use down or drain to take a server out", s.ID, s.Weight)
	case s.MaxConns < 0:
		return fmt.Errorf("server %q: max_conns %d: must not be negative", s.ID, s.MaxConns)
	case s.MaxFails < 0:
		return fmt.Errorf("server %q: max_fails %d: must not be negative", s.ID, s.MaxFails)
	case s.FailTimeout < 0:
		return fmt.Errorf("server %q: fail_timeout %s: must not be negative", s.ID, s.FailTimeout)
	case s.CloseAfter < 0:
		return fmt.Errorf("server %q: drain_timeout %s: must not be negative", s.ID, s.CloseAfter)
	case s.SlowStart < 0:
		return fmt.Errorf("server %q: slow_start %s: must not be negative", s.ID, s.SlowStart)
	}
	return nil
}

// Apply brings a configuration into force. Peers are matched by ID and address;
// those that stay keep their state and their leases, those that go finish
// what they hold, and one that comes back while it is still held is the same
// peer as before, so that max_conns stays exact. Nothing is changed when the
// configuration is not valid.
func (g *Group) Apply(c Config, now time.Time) error {
	if err := c.validate(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.unlockAt(now)
	known, err := g.matchLocked(c.Servers)
	if err != nil {
		return err
	}
	fresh := g.method == nil
	g.method, g.tracker, g.guards = c.Method, c.Tracker, c.Guards
	g.queue.limit = c.Queue
	g.patience.Store(int64(c.QueueTimeout))
	g.wants.Store(nil)
	if w, ok := c.Method.(Wanter); ok {
		wants := w.Wants()
		g.wants.Store(&wants)
	}
	rename := g.secret != c.Secret
	g.secret = c.Secret
	if rename {
		for _, p := range g.removed { // they may come back
			p.setSID(p.conf.Load(), g.secret)
		}
	}

	prev := g.lists
	for i, was := range prev {
		was.flatten()
		g.lists[i] = &List{group: g, backup: was.backup, unit: 1, panics: was.panics}
	}
	for i, p := range known {
		s := &c.Servers[i]
		comes := !fresh // back, or new among others
		if p != nil {
			comes = !p.conf.Load().usable()
		} else {
			p = g.newPeerLocked(s)
		}
		if p.list == nil || p.conf.Load().Down && !s.Down {
			g.enrollLocked(p, now)
		}
		g.members[s.ID] = p
		l := g.lists[0]
		if s.Backup {
			l = g.lists[1]
		}
		l.adopt(p, s, rename)
		p.inServiceLocked(s.usable(), now)
		if comes && s.usable() {
			g.rampLocked(p, now)
		}
	}
	g.retain = c.Retain
	g.removed = slices.DeleteFunc(g.removed, func(p *Peer) bool { return p.list != nil })
	for _, l := range prev {
		g.dismissLocked(l, now)
	}
	g.forgetLocked()
	g.countDown = c.SingleCountsDown
	g.single = g.onlyPeer()
	for i, l := range g.lists {
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

// place identifies a peer from one configuration to the next.
type place struct{ id, address string }

func (p *Peer) place() place { return place{p.ID(), p.Address()} }

// matchLocked returns the peers that servers mean, removed ones included; nil
// for those that are new.
func (g *Group) matchLocked(servers []Server) ([]*Peer, error) {
	g.applied++
	known := make([]*Peer, len(servers))
	added := map[string]bool{}
	removed := map[place]*Peer{}
	for _, p := range g.removed {
		removed[p.place()] = p
	}
	for i := range servers {
		s := &servers[i]
		p := g.members[s.ID]
		if p != nil && p.mark == g.applied || added[s.ID] {
			return nil, s.duplicate()
		}
		if p == nil {
			added[s.ID] = true
		} else {
			p.mark = g.applied
		}
		if p == nil || p.Address() != s.Address {
			p = removed[place{s.ID, s.Address}]
		}
		known[i] = p
	}
	return known, nil
}

// dismissLocked removes the peers that no new list has taken from l.
func (g *Group) dismissLocked(l *List, now time.Time) {
	for _, p := range l.peers {
		if p.list != l {
			continue
		}
		if id := p.ID(); g.members[id] == p {
			delete(g.members, id)
		}
		p.list, p.eligible = nil, false
		p.inServiceLocked(false, now)
		p.attentive.Store(true)
		g.removed = append(g.removed, p)
		g.takenOutLocked(p)
	}
}

// takenOutLocked tells those who hold p.
func (g *Group) takenOutLocked(p *Peer) {
	if p.conns.Load() > 0 {
		g.events = append(g.events, Event{Kind: ServerOut, Peer: p})
	}
}

// InService reports whether p is a member of the group that no configuration
// has set down.
func (g *Group) InService(p *Peer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.list != nil && !p.conf.Load().Down
}

func (g *Group) newPeerLocked(s *Server) *Peer {
	p := &Peer{group: g}
	p.setSID(s, g.secret)
	p.health.Weight = int64(s.Weight)
	p.configure(s)
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
	if c := p.conf.Load(); *c != *s {
		p.configure(s)
		if s.Down && !c.Down {
			l.group.takenOutLocked(p)
		}
	}
	p.list, p.index = l, len(l.peers)
	l.peers = append(l.peers, p)
	l.weight += is
	p.eligible, p.up = false, false
	if s.usable() {
		l.usable++
		ill := p.ill()
		if ill {
			l.ill++
		}
		if ill || !p.downSince.IsZero() {
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
func (g *Group) onlyPeer() *Peer {
	var only *Peer
	for _, l := range g.lists {
		for _, p := range l.peers {
			switch {
			case !g.countDown && (!p.conf.Load().usable() || p.ill() && !l.panics):
			case l.backup || only != nil:
				return nil
			default:
				only = p
			}
		}
	}
	return only
}
