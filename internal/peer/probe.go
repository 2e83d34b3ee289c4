// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// probeState is how far a peer whose time out is over has come, if its server
// wants to be probed before a request may meet it.
type probeState uint8

const (
	probeNone probeState = iota
	probeWanted
	probePassed
)

// probePatience is how long an answer to ProbeWanted is awaited, at the least,
// before the event is sent again: whoever got it may have gone.
const probePatience = time.Second

func (g *Group) wantProbeLocked(p *Peer, c comeback, now time.Time) {
	p.probe = probeWanted
	g.events = append(g.events, Event{Kind: ProbeWanted, Peer: p})
	c.at = now.Add(max(p.conf.Load().FailTimeout, probePatience))
	g.back.push(c)
}

// Probed answers ProbeWanted. If the peer was reached, one request may try it
// as after any time out; if not, that counts as a failure with that cause.
func (g *Group) Probed(p *Peer, reached bool, cause error, now time.Time) {
	g.mu.Lock()
	defer g.unlockAt(now)
	if p.probe != probeWanted || p.list == nil {
		return
	}
	if reached {
		p.probe = probePassed
		p.refreshLocked(now)
		return
	}
	p.probe = probeNone
	g.outcomeLocked(p, Failed, cause, now)
}
