// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package passivehealth

import (
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// maxFails is nginx's rule of max_fails and fail_timeout. Accessed is the time of
// the last failure; Checked is moved past it only by a selection after a quiet
// fail_timeout, and only a success of such a selection clears the failures. So
// failures add up although successes happen in between, and of the requests
// that come after a time out exactly one probes the peer: its selection moves
// Checked, which hides the peer from everybody else again.
//
// nginx compares whole seconds; this compares exact times, with the same "<="
// and ">".
type maxFails struct{}

// Picked implements peer.Tracker.
func (maxFails) Picked(p *peer.Peer, h *peer.Health, now time.Time) {
	if now.Sub(h.Checked) > p.FailTimeout() {
		h.Checked = now
		settle(p.Server(), h)
	}
}

// Done implements peer.Tracker.
func (maxFails) Done(p *peer.Peer, h *peer.Health, o peer.Outcome, now time.Time) {
	s := p.Server()
	if o != peer.Failed {
		if h.Accessed.Before(h.Checked) {
			h.Fails = 0
			settle(s, h)
		}
		return
	}
	h.Fails++
	h.Accessed, h.Checked = now, now
	if s.MaxFails > 0 {
		h.Weight = max(0, h.Weight-int64(s.Weight/s.MaxFails))
	}
	settle(s, h)
}

// Configured implements peer.Tracker.
func (maxFails) Configured(p *peer.Peer, h *peer.Health, _ time.Time) {
	settle(p.Server(), h)
}

// settle derives the end of the time out from the rest of h.
func settle(s *peer.Server, h *peer.Health) {
	h.Until = time.Time{}
	if s.MaxFails > 0 && h.Fails >= s.MaxFails {
		h.Until = h.Checked.Add(s.FailTimeout)
	}
}
