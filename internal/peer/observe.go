// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// Metric is a time of an attempt, counted from just before connecting.
type Metric uint8

const (
	// Connect: the connection was established; Lease.Connected reports it. An
	// HTTP front, where nginx has no such time, reports that of the header.
	Connect Metric = iota
	// FirstByte: the response header was complete, or in stream the first byte
	// came.
	FirstByte
	// LastByte: the end of the attempt; Done sets it where nobody has.
	LastByte

	metrics
)

// Observer is a Balancer that wants to know how the leases of its list go. Its
// methods run under the group's lock. A lease is observed by the balancer that
// was in force when it was picked, to the end.
type Observer interface {
	// Started is called when l has been taken.
	Started(l *Lease, now time.Time)
	// Known is called when a time of l is known before its end.
	Known(l *Lease, m Metric, now time.Time)
	// Ended is called when l is given back, conns already lowered.
	Ended(l *Lease, o Outcome, now time.Time)
}

// Observe reports a time of the attempt as soon as it is known.
func (l *Lease) Observe(m Metric, d time.Duration, now time.Time) {
	if l.observer == nil {
		return
	}
	g := l.peer.group
	g.mu.Lock()
	defer g.unlockAt(now)
	if l.done.Load() || l.times[m] != 0 {
		return
	}
	l.times[m] = max(1, d) // 0 is unknown
	l.observer.Known(l, m, now)
}

// Time returns a time of the attempt; 0: unknown. For observers.
func (l *Lease) Time(m Metric) time.Duration { return l.times[m] }

func (l *Lease) ended(o Outcome, now time.Time) {
	if l.observer == nil {
		return
	}
	if l.times[LastByte] == 0 {
		l.times[LastByte] = max(1, now.Sub(l.Start))
	}
	l.observer.Ended(l, o, now)
}
