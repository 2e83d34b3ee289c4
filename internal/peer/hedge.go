// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// Hedge picks a second peer while the connection to the first one, held by
// slow, is still not there. Both leases are open then, each with an outcome of
// its own, and slow may end after the session does. From here to that end slow's
// peer is not eligible for anybody. The error is ErrNoPeers if there is no
// other peer, no try left for it, or slow has ended; then nothing has changed.
func (s *Session) Hedge(slow *Lease, now time.Time) (*Lease, error) {
	g, p := s.group, slow.peer
	g.mu.Lock()
	defer g.unlockAt(now)
	if g.single != nil || s.tries-s.hedging < 2 {
		return nil, ErrNoPeers
	}
	g.advanceLocked(now)
	// From here Done waits for the lock, if it has not gone by already.
	p.attentive.Store(true)
	defer p.refreshLocked(now)
	if slow.hedged || slow.done.Load() {
		return nil, ErrNoPeers
	}
	l, err := g.leaseLocked(s, false, now) // nothing is sent twice: no retry
	if err != nil {
		return nil, err
	}
	l.TriesLeft = s.tries - s.hedging - 2
	slow.hedged = true
	p.hedges++
	s.hedging++
	return l, nil
}
