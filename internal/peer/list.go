// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// List is the primary or the backup peers of a group, in the order of the
// configuration. Guests may use its methods while they run.
type List struct {
	group    *Group
	backup   bool
	peers    []*Peer
	weight   int64 // of all peers, down ones included
	usable   int   // peers neither down nor draining
	balancer Balancer

	// The pass runs on the wheel until a balancer asks for a pass among some of
	// the peers; then, until the list is built anew, over the plain list.
	wheel wheel
	plain bool
}

// Len is the number of peers, down ones included.
func (l *List) Len() int { return len(l.peers) }

// At returns the peer at place i.
func (l *List) At(i int) *Peer { return l.peers[i] }

// TotalWeight is the sum of the configured weights, down ones included.
func (l *List) TotalWeight() int64 { return l.weight }

// Backup reports whether these are the backup peers.
func (l *List) Backup() bool { return l.backup }

// file puts p where the pass finds it, if it may be picked, and takes it from
// there if not.
func (l *List) file(p *Peer, ok bool) {
	if l.plain {
		return
	}
	weight := int64(p.conf.Load().Weight)
	whole := p.health.Weight == weight
	switch {
	case ok && p.class != nil && whole && p.class.weight == weight, ok && p.slow && !whole:
		return
	case l.wheel.holds(p):
		l.wheel.leave(p)
	}
	if ok {
		l.wheel.enter(p)
	}
}

// flatten makes every current weight explicit and leaves the wheel for good.
func (l *List) flatten() {
	l.wheel.dissolve()
	l.plain = true
}

// roundRobin runs one pass over the eligible peers that are not in tried.
func (l *List) roundRobin(tried []*Peer) *Peer {
	if !l.plain {
		return l.wheelPass(tried)
	}
	var best *Peer
	var total int64
	for _, p := range l.peers {
		if !p.eligible || contains(tried, p) {
			continue
		}
		total += gain(p)
		if best == nil || p.rel > best.rel {
			best = p
		}
	}
	if best != nil {
		best.rel -= total
	}
	return best
}

// wheelPass keeps the tried peers, few if any, out of the wheel for one pass.
func (l *List) wheelPass(tried []*Peer) *Peer {
	if len(tried) == 0 {
		return l.wheel.pass()
	}
	for _, p := range tried {
		if p.list == l {
			l.wheel.leave(p)
		}
	}
	best := l.wheel.pass()
	for _, p := range tried {
		if p.list == l && p.eligible {
			l.wheel.enter(p)
		}
	}
	return best
}

// roundRobinAmong runs one pass over peers, which are eligible and untried
// members in list order.
func (l *List) roundRobinAmong(peers []*Peer) *Peer {
	if len(peers) == 1 {
		p := peers[0]
		if weight := int64(p.conf.Load().Weight); p.health.Weight < weight {
			p.health.Weight++
			l.file(p, p.eligible)
		}
		return p
	}
	l.flatten()
	return plainPass(peers)
}

// pick asks the balancer and books the choice.
func (l *List) pick(s *Session, now time.Time) *Peer {
	s.pass = Pass{s: s, l: l, now: now}
	return l.balancer.Pick(&s.pass)
}

func contains(peers []*Peer, p *Peer) bool {
	for _, q := range peers {
		if q == p {
			return true
		}
	}
	return false
}
