// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"slices"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Race is what a front has under way for a walk besides the current try:
// connections that are being made.
type Race interface {
	// Await waits for one of them and hands its try to the walk, ready to be
	// returned by Select. It reports false if there is none left.
	Await() bool

	// Cancel ends them, if no server has been connected yet: the client has gone.
	Cancel()
}

// Compete tells the walk of its race, before the first connection of it.
func (w *Walk) Compete(r Race) {
	w.mu.Lock()
	w.race = r
	w.mu.Unlock()
	if w.left() {
		r.Cancel()
	}
}

// Racing returns what Compete was told.
func (w *Walk) Racing() Race {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.race
}

// Hedge picks one more server while t is connecting slowly, and makes t's lease
// one that may end later. The next Select returns the new try's server.
func (w *Walk) Hedge(t *Try, now time.Time) error {
	lease, err := w.Session.Hedge(t.Lease, now)
	if err != nil {
		return err
	}
	next := w.newTry()
	next.hold(lease)
	w.record.addTry(next)
	w.handOut(next)
	return nil
}

// Park makes t, whose round trip is about to end without a result, one that
// ends later, by Finish, whatever happens to the request; or that Resume brings
// back.
func (t *Try) Park(now time.Time) {
	t.walk.Session.Park(t.Lease, now) // Hedge has done so
	t.state.CompareAndSwap(inFlight, parked)
}

// Resume makes t the try that the next Select returns: its connection is there.
// It is the last of the walk's tries from now on, as the one that is to answer.
func (t *Try) Resume(now time.Time) {
	w := t.walk
	w.Session.Resume(t.Lease, now)
	t.state.Store(picked)
	w.record.last(t)
	w.handOut(t)
}

// handOut makes the next Select return t.
func (w *Walk) handOut(t *Try) {
	w.mu.Lock()
	w.next = t
	w.mu.Unlock()
	if w.left() {
		t.abandon()
	}
}

// handedOut is the try that a race has decided on; nil: a server is to be picked.
func (w *Walk) handedOut() *Try {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.next
	if t != nil {
		w.next, w.try = nil, t
		w.latest = t.Lease.Peer()
	}
	return t
}

// hold makes t a try with a lease.
func (t *Try) hold(l *peer.Lease) {
	t.Lease, t.addr = l, l.Peer().Name()
	t.Attempt.Start = l.Start
	l.Hold(t, false)
}

// last moves t behind the other tries.
func (r *Record) last(t *Try) {
	if i := slices.Index(r.tries, t); i >= 0 {
		r.tries = append(slices.Delete(r.tries, i, i+1), t)
	}
}
