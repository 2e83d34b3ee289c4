// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// Slow start. A list in which a server may start slowly counts current weights
// in hundredths, always, so that nothing changes when a ramp begins or ends, and
// a weight of 1 can be climbed in steps. While a peer climbs it is scanned apart
// in the wheel; a pass then costs as much more as peers are climbing.

// rampSteps is how finely a ramp is cut.
const rampSteps = 100

// rampLocked begins the slow start of p, if its server has one, or begins it
// anew.
func (g *Group) rampLocked(p *Peer, now time.Time) {
	s := p.conf.Load()
	if s.SlowStart <= 0 || p.list == nil {
		return
	}
	if p.rampFrom.IsZero() {
		g.ramping = append(g.ramping, p)
	}
	p.rampFrom = now
	p.ceil = int64(s.Weight)
}

// advanceRampsLocked sets the weights of all peers that start slowly.
func (g *Group) advanceRampsLocked(now time.Time) {
	kept := g.ramping[:0]
	for _, p := range g.ramping {
		if p.list == nil {
			p.rampFrom = time.Time{}
			continue
		}
		if step := p.step(now); step < rampSteps {
			p.ceil = int64(p.conf.Load().Weight) * step
			kept = append(kept, p)
			continue
		}
		p.rampFrom = time.Time{}
		p.ceil = int64(p.conf.Load().Weight) * p.list.unit
		p.refreshLocked(now)
	}
	clear(g.ramping[len(kept):])
	g.ramping = kept
}

// step is how far p's slow start has come, from 1 to rampSteps. The only peer
// of a group does not start slowly.
func (p *Peer) step(now time.Time) int64 {
	s := p.conf.Load()
	spent := now.Sub(p.rampFrom)
	if spent >= s.SlowStart || p.group.single == p {
		return rampSteps
	}
	return max(1, int64(float64(spent)/float64(s.SlowStart)*rampSteps))
}

// percent is the part of its weight that p has had since the last pick.
func (p *Peer) percent() int {
	if p.rampFrom.IsZero() {
		return 100
	}
	return int(p.ceil / int64(p.conf.Load().Weight))
}

// percentAt is the part of its weight that p has for a pick now.
func (p *Peer) percentAt(now time.Time) int {
	if p.rampFrom.IsZero() {
		return 100
	}
	return int(p.step(now) * 100 / rampSteps)
}

// Admits reports whether x, which a hash of x's session or a random number has
// chosen, takes part already if it starts slowly: the part of all values of
// hash that its slow start has reached is admitted, always the same ones.
func (p *Pass) Admits(x *Peer, hash uint64) bool {
	// Mixed, for what chose x may have used the same remainder.
	return x.rampFrom.IsZero() || hash*0x9e3779b97f4a7c15>>32%rampSteps < uint64(x.percent())
}

// AdmitsRandom is Admits for a choice by random numbers.
func (p *Pass) AdmitsRandom(x *Peer) bool {
	return x.rampFrom.IsZero() || p.IntN(rampSteps) < x.percent()
}
