// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"sync/atomic"
	"time"
)

// Stats counts what became of the tries of a peer. Fronts write to it without a
// lock, and once for a try; whatever it costs is paid by every request.
type Stats struct {
	// Responses are the answers by class: 1xx to 5xx. The first is for 101.
	Responses [5]atomic.Uint64
	// Sent and Received are the bytes to and from the server, of ended tries.
	Sent, Received atomic.Uint64
	// Broken are the responses that the server broke off after their header.
	Broken atomic.Uint64
	// Sessions are the stream sessions that were connected.
	Sessions atomic.Uint64
	// Header is the time until the response header was complete, or in stream
	// the first byte came; Response that until the end of the try.
	Header, Response atomic.Pointer[Histogram]
}

// Equal reports whether both are those of one peer.
func (s *Stats) Equal(o *Stats) bool { return s == o }

// Answered counts a response status.
func (s *Stats) Answered(status int) {
	if class := status/100 - 1; class >= 0 && class < len(s.Responses) {
		s.Responses[class].Add(1)
	}
}

// Record adds a time to a histogram of the peer, which is made by the first.
func Record(h *atomic.Pointer[Histogram], d time.Duration, now time.Time) {
	got := h.Load()
	if got == nil {
		got = new(Histogram)
		if !h.CompareAndSwap(nil, got) {
			got = h.Load()
		}
	}
	got.Record(d, now)
}

func (s *Stats) reset() {
	for i := range s.Responses {
		s.Responses[i].Store(0)
	}
	s.Sent.Store(0)
	s.Received.Store(0)
	s.Broken.Store(0)
	s.Sessions.Store(0)
	s.Header.Store(nil)
	s.Response.Store(nil)
}

// Reason says why a lease ended with Failed: one of nginx's conditions.
type Reason uint8

// reasons is the number of conditions that are a reason.
const reasons = 10 // all but non_idempotent

// ReasonOf returns the reason that a single condition is; anything else is an
// error.
func ReasonOf(c Conditions) Reason {
	for i := range reasons {
		if c == 1<<i {
			return Reason(i)
		}
	}
	return 0
}

func (r Reason) String() string { return conditionNames[r] }

// Reasons counts failures by reason.
type Reasons [reasons]uint64

// Map returns the reasons that there were, by name.
func (r *Reasons) Map() map[string]uint64 {
	var out map[string]uint64
	for i, n := range r {
		if n > 0 {
			if out == nil {
				out = map[string]uint64{}
			}
			out[Reason(i).String()] = n
		}
	}
	return out
}
