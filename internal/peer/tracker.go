// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// Outcome is how a lease ends.
type Outcome uint8

const (
	// None: the peer was not asked, or the client left: only conns changes.
	None Outcome = iota
	// Success: the peer answered.
	Success
	// Failed: the peer did not answer as it should.
	Failed
	// Next: the peer answered, and another one is asked all the same (403, 404).
	Next
	// Stale: as Failed, but it does not use up a try: a cached connection that
	// the peer had closed.
	Stale
)

var outcomeNames = [...]string{"none", "success", "failed", "next", "stale"}

func (o Outcome) String() string { return outcomeNames[o] }

// Tracker turns outcomes into eligibility and effective weight. Its methods
// run under the group's lock. It is not asked about a group's single peer,
// nor of a success of a peer that has no failures.
type Tracker interface {
	// Picked is called when p is picked.
	Picked(p *Peer, h *Health, now time.Time)
	// Done is called when a lease of p ends with Success, Failed or Next.
	Done(p *Peer, h *Health, o Outcome, now time.Time)
	// Configured is called when p's configuration has changed.
	Configured(p *Peer, h *Health, now time.Time)
}
