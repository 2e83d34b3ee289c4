// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"time"
)

// Guards limit what failures can do to a group. All are off at zero.
type Guards struct {
	// MaxUnavailable is the greatest part of the servers of a list, in percent,
	// that the tracker may take out at once, the one in question included.
	MaxUnavailable int
	// Panic is the part of the servers of a list, in percent, below which the
	// tracker is ignored: then all that are not down or full may be picked.
	Panic int
	// RetryBudget is the greatest part of the leases, in percent, that may be
	// further tries of their session at once; RetryMin are allowed in any case.
	RetryBudget int
	RetryMin    int
}

func (gu *Guards) validate() error {
	for _, v := range []struct {
		name  string
		value int
	}{{"max_unavailable", gu.MaxUnavailable}, {"panic", gu.Panic}, {"retry_budget", gu.RetryBudget}} {
		if v.value < 0 || v.value > 100 {
			return fmt.Errorf("%s %d: must be a percentage from 0 to 100", v.name, v.value)
		}
	}
	if gu.RetryMin < 0 {
		return fmt.Errorf("retry_budget min=%d: must not be negative", gu.RetryMin)
	}
	return nil
}

// mayEject reports whether the tracker may take out one more peer of p's list.
func (g *Group) mayEject(p *Peer) bool {
	most, l := g.guards.MaxUnavailable, p.list
	if most == 0 || l == nil || !p.conf.Load().usable() {
		return true
	}
	return (l.out+1)*100 <= most*l.usable
}

// outLocked counts a peer that the tracker has taken out (+1) or trusts again
// (-1).
func (g *Group) outLocked(p *Peer, change int, now time.Time) {
	l := p.list
	if l == nil || !p.conf.Load().usable() {
		return
	}
	l.out += change
	g.panicLocked(p, now)
}

// panicLocked turns panic on or off in p's list, if it must be.
func (g *Group) panicLocked(p *Peer, now time.Time) {
	l := p.list
	panics := l.inPanic()
	if panics == l.panics {
		return
	}
	l.panics = panics
	g.aloneLocked()
	kind := PanicEnds
	if panics {
		kind = PanicBegins
	}
	g.events = append(g.events, Event{Kind: kind, Peer: p})
	for _, q := range l.peers {
		if !q.health.Until.IsZero() || len(q.verdicts) > 0 {
			q.refreshLocked(now)
		}
	}
}

// inPanic reports whether too few of the list's peers are trusted.
func (l *List) inPanic() bool {
	return (l.usable-l.out)*100 < l.group.guards.Panic*l.usable
}

// mayRetryLocked reports whether the budget allows one more lease that is not
// the first of its session; own is 1 if that session holds no lease now.
func (g *Group) mayRetryLocked(own int64) bool {
	if g.guards.RetryBudget == 0 {
		return true
	}
	most := (g.active.Load() + own) * int64(g.guards.RetryBudget) / 100
	return g.retrying.Load() < max(most, int64(g.guards.RetryMin))
}

// spinWork limits what a random start may cost.
const spinWork = 1 << 20

// spin runs a random number of passes, up to a whole cycle.
func (l *List) spin() {
	if l.eligible == 0 {
		return
	}
	// The cycle is over when every peer has had its weight, less common factors.
	cycle, factor := int64(0), int64(0)
	for _, p := range l.peers {
		if p.eligible {
			w := int64(p.conf.Load().Weight)
			cycle += w
			factor = gcd(factor, w)
		}
	}
	cycle = min(cycle/factor, spinWork/int64(max(16, len(l.wheel.classes))))
	for range l.group.opts.IntN(int(cycle)) {
		l.roundRobin(nil)
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
