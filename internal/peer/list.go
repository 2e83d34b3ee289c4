// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"slices"
	"time"
)

// List is the primary or the backup peers of a group, in the order of the
// configuration. Guests may use its methods while they run.
type List struct {
	group    *Group
	backup   bool
	peers    []*Peer
	weight   int64 // of all peers, down ones included
	usable   int   // peers neither down nor draining
	unit     int64 // what a weight of 1 is in current weights: 1, or more where a server may start slowly
	balancer Balancer
	hinter   Hinter   // the balancer, if it is one
	observer Observer // the balancer, if it is one
	pass     Pass     // what the balancer sees, for the length of a pick

	eligible int   // peers that may be picked
	up       int   // peers that are up, full ones included
	upWeight int64 // their configured weight
	out      int   // usable peers that the tracker has disabled and not trusted again, or that are ill
	ill      int   // usable peers that an active check has out
	panics   bool  // so few are up that health is ignored

	// Made when first asked for, until the list is built anew.
	sums []int64          // running sums of the configured weights
	sids map[string]*Peer // the first peer of each sid

	// The pass runs on the wheel until a balancer asks for a pass among some of
	// the peers; then, until the list is built anew, over the plain list.
	wheel wheel
	plain bool
}

// Len is the number of peers, down ones included.
func (l *List) Len() int { return len(l.peers) }

// At returns the peer at place i.
func (l *List) At(i int) *Peer { return l.peers[i] }

// Up returns how many peers are not down, draining or disabled, full ones
// included, and their configured weight.
func (l *List) Up() (n int, weight int64) { return l.up, l.upWeight }

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
	whole := p.whole()
	switch {
	case ok && p.class != nil && whole && p.class.weight == p.ceil, ok && p.slow && !whole:
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
	return l.without(tried, l.wheel.pass)
}

func (l *List) without(tried []*Peer, pass func() *Peer) *Peer {
	for _, p := range tried {
		if p.list == l {
			l.wheel.leave(p)
		}
	}
	best := pass()
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
	if !l.plain {
		l.flatten()
	}
	return plainPass(peers)
}

// count keeps the list's counters when p's state changes; p still holds the
// state before in eligible.
func (l *List) count(p *Peer, eligible, up bool) {
	if eligible != p.eligible {
		l.eligible += sign(eligible)
	}
	if up != p.up {
		p.up = up
		l.up += sign(up)
		l.upWeight += int64(sign(up) * p.conf.Load().Weight)
	}
}

func sign(plus bool) int {
	if plus {
		return 1
	}
	return -1
}

// chargeTo books a win of p, which a sticky hint named, in round robin: not at
// all if p is as far behind as it can be, else as one pass that p wins.
func (l *List) chargeTo(p *Peer, tried []*Peer) {
	whole := int64(p.conf.Load().Weight)
	if p.unitWeight() <= -(l.weight-whole)*l.unit {
		return
	}
	if l.plain {
		var total int64
		for _, q := range l.peers {
			if q.eligible && !contains(tried, q) {
				total += gain(q)
			}
		}
		p.rel -= total
		return
	}
	l.without(tried, func() *Peer {
		l.wheel.passTo(p)
		return p
	})
}

// AtWeight returns the peer whose share of the configured weights, down ones
// included, holds w, with 0 <= w < TotalWeight.
func (l *List) AtWeight(w int64) *Peer {
	if l.weight == int64(len(l.peers)) {
		return l.peers[w]
	}
	if len(l.sums) != len(l.peers) {
		l.sums = make([]int64, len(l.peers))
		var sum int64
		for i, p := range l.peers {
			sum += int64(p.conf.Load().Weight)
			l.sums[i] = sum
		}
	}
	i, _ := slices.BinarySearch(l.sums, w+1)
	return l.peers[i]
}

// pick uses the session's hint or else asks the balancer.
func (l *List) pick(s *Session, now time.Time) *Peer {
	if s.opts.Hint != "" {
		if p := l.hinted(s, now); p != nil {
			if l.hinter != nil {
				l.pass = Pass{s: s, l: l, now: now}
				l.hinter.Hinted(&l.pass, p)
				l.pass.s = nil
			}
			return p
		}
	}
	if l.eligible == 0 {
		return nil
	}
	l.pass = Pass{s: s, l: l, now: now}
	p := l.balancer.Pick(&l.pass)
	l.pass.s = nil
	return p
}

func contains(peers []*Peer, p *Peer) bool {
	for _, q := range peers {
		if q == p {
			return true
		}
	}
	return false
}
