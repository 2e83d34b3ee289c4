// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"slices"
	"time"
)

// Active checks. The engine asks nobody: whoever does tells it of verdicts. A
// peer is out while any check says so, the only peer of a group too, and
// whatever the tracker thinks of it; a list in panic picks it all the same. A
// peer that a check has out does not count when it is decided whether a group
// has only one server, which the tracker never disables: the last one that is
// well is as good as alone.

// Check is one active check of a group, from AddCheck to End.
type Check struct {
	group     *Group
	name      string
	mandatory bool
	closes    bool
	ended     bool // guarded by the group's lock
}

// verdict is why a check has a peer out.
type verdict struct {
	check  *Check
	reason string
	since  time.Time
	// unproven: it has not passed this check yet, which is mandatory, nor
	// failed it. Nothing is known of the peer, so that panic does not pick it.
	unproven bool
}

// CheckState is a verdict as it was at one moment.
type CheckState struct {
	Check, Reason string
	Since         time.Time
	Unproven      bool
}

// CheckOptions are fixed for the life of a check.
type CheckOptions struct {
	Name string
	// Mandatory keeps new members out until their first pass; with Prove, all
	// that are members when the check begins.
	Mandatory, Prove bool
	// Closes: the sessions of streams that hold a peer are aborted when it fails.
	Closes bool
	// Before is a check that this one replaces, and ends. What it has out stays
	// out until the new one says otherwise.
	Before *Check
}

// AddCheck begins a check.
func (g *Group) AddCheck(o CheckOptions, now time.Time) *Check {
	g.mu.Lock()
	defer g.unlockAt(now)
	c := &Check{group: g, name: o.Name, mandatory: o.Mandatory, closes: o.Closes}
	g.checks = append(g.checks, c)
	for _, p := range g.peersLocked() {
		was := p.ill()
		i := p.verdictOf(o.Before)
		if i >= 0 {
			p.verdicts[i].check = c
			p.verdicts[i].unproven = p.verdicts[i].unproven && o.Mandatory
		}
		if i < 0 && o.Mandatory && o.Prove {
			p.verdicts = append(p.verdicts, c.unproven(now))
		}
		g.barredLocked(p, was, now)
	}
	if o.Before != nil {
		g.endLocked(o.Before, now)
	}
	return c
}

func (c *Check) unproven(now time.Time) verdict {
	return verdict{check: c, reason: "not checked yet", since: now, unproven: true}
}

// End ends a check and forgets its verdicts.
func (c *Check) End(now time.Time) {
	g := c.group
	g.mu.Lock()
	defer g.unlockAt(now)
	g.endLocked(c, now)
}

func (g *Group) endLocked(c *Check, now time.Time) {
	if c.ended {
		return
	}
	c.ended = true
	g.checks = slices.DeleteFunc(g.checks, func(x *Check) bool { return x == c })
	for _, p := range slices.Concat(g.peersLocked(), g.removed) {
		if i := p.verdictOf(c); i >= 0 {
			was := p.ill()
			p.verdicts = slices.Delete(p.verdicts, i, i+1)
			g.barredLocked(p, was, now)
		}
	}
}

func (g *Group) peersLocked() []*Peer { return slices.Concat(g.lists[0].peers, g.lists[1].peers) }

// Fail says that p has not passed the check, and why.
func (c *Check) Fail(p *Peer, reason error, now time.Time) {
	for _, open := range c.fail(p, reason, now) {
		open.Abort()
	}
}

// fail returns what is to be closed.
func (c *Check) fail(p *Peer, reason error, now time.Time) []Aborter {
	g := c.group
	g.mu.Lock()
	defer g.unlockAt(now)
	if c.ended || p.list == nil {
		return nil
	}
	i := p.verdictOf(c)
	if i >= 0 && !p.verdicts[i].unproven {
		p.verdicts[i].reason = reason.Error()
		return nil
	}
	was := p.ill()
	v := verdict{check: c, reason: reason.Error(), since: now}
	if i >= 0 {
		p.verdicts[i] = v
	} else {
		p.verdicts = append(p.verdicts, v)
	}
	g.events = append(g.events, Event{Kind: ServerUnhealthy, Peer: p, Check: c.name, Cause: reason})
	g.barredLocked(p, was, now)
	if !c.closes {
		return nil
	}
	return p.holders.list(true)
}

// Pass says that p has passed the check, often enough, with checks that began
// at since or later. That ends a time out that began before.
func (c *Check) Pass(p *Peer, since, now time.Time) {
	g := c.group
	g.mu.Lock()
	defer g.unlockAt(now)
	if c.ended || p.list == nil {
		return
	}
	if i := p.verdictOf(c); i >= 0 {
		v, was := p.verdicts[i], p.ill()
		p.verdicts = slices.Delete(p.verdicts, i, i+1)
		if !v.unproven {
			g.events = append(g.events, Event{Kind: ServerHealthy, Peer: p, Check: c.name, DownFor: now.Sub(v.since)})
		}
		g.barredLocked(p, was, now)
		if len(p.verdicts) == 0 {
			g.rampLocked(p, now)
			p.refreshLocked(now)
		}
	}
	if before := p.health.Until; !before.IsZero() && p.downSince.Before(since) {
		p.health.Fails, p.health.Until = 0, time.Time{}
		p.health.Weight = int64(p.conf.Load().Weight)
		g.judgedLocked(p, before, nil, now)
	}
}

// barredLocked is called after the verdicts on p have changed; was says whether
// one of them had it out before.
func (g *Group) barredLocked(p *Peer, was bool, now time.Time) {
	if p.list == nil {
		return
	}
	if is := p.ill(); is != was {
		if p.conf.Load().usable() {
			p.list.ill += sign(is)
		}
		if p.downSince.IsZero() {
			g.outLocked(p, sign(is), now)
		}
		g.aloneLocked()
	}
	p.refreshLocked(now)
}

// aloneLocked looks anew for the only peer, once it may have changed without the
// configuration.
func (g *Group) aloneLocked() {
	if g.countDown {
		return
	}
	g.single = nil
	if g.lists[0].well()+g.lists[1].well() == 1 {
		g.single = g.onlyPeer()
	}
}

// well is how many peers could be picked if none were full or disabled.
func (l *List) well() int {
	if l.panics {
		return l.usable
	}
	return l.usable - l.ill
}

// enrollLocked puts p, a new or returning member, out for the mandatory checks.
func (g *Group) enrollLocked(p *Peer, now time.Time) {
	for _, c := range g.checks {
		if c.mandatory && p.verdictOf(c) < 0 {
			p.verdicts = append(p.verdicts, c.unproven(now))
		}
	}
}

// verdictOf returns the place of c's verdict, -1 if it has none.
func (p *Peer) verdictOf(c *Check) int {
	return slices.IndexFunc(p.verdicts, func(v verdict) bool { return v.check == c })
}

// ill reports whether the peer has failed a check.
func (p *Peer) ill() bool {
	return slices.ContainsFunc(p.verdicts, func(v verdict) bool { return !v.unproven })
}

// barred reports whether a check keeps the peer, which has a list, from being
// picked.
func (p *Peer) barred() bool {
	return len(p.verdicts) > 0 &&
		(!p.list.panics || slices.ContainsFunc(p.verdicts, func(v verdict) bool { return v.unproven }))
}

func (p *Peer) checkStates() []CheckState {
	if len(p.verdicts) == 0 {
		return nil
	}
	out := make([]CheckState, len(p.verdicts))
	for i, v := range p.verdicts {
		out[i] = CheckState{Check: v.check.name, Reason: v.reason, Since: v.since, Unproven: v.unproven}
	}
	return out
}
