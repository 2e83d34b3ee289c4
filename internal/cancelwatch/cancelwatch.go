// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package cancelwatch tells short work that its context has ended, for less
// than context.AfterFunc costs.
//
// AfterFunc enters each piece of work with its context at once: four
// allocations, two walks up the chain of contexts and a map entry, for nothing
// if the work is done a moment later. A [Watch] keeps new work in a list, and
// only what is still there after a tick or two is registered with its context.
// The price is that the end of a context is told up to two ticks late to work
// that has just begun.
package cancelwatch

import (
	"context"
	"sync"
	"time"
)

// Tick is how often a Watch with work looks at it.
const Tick = 10 * time.Millisecond

// Work is something that wants to know when its context ends.
type Work interface {
	// Context is asked for at most once after Add.
	Context() context.Context
	// Canceled is called, in a goroutine of its own and at most once, when the
	// context has ended before Stop.
	Canceled()
}

// Watch watches work. Its zero value is ready; it must not be copied.
type Watch struct {
	mu    sync.Mutex // guards all that follows, and the entries
	lists [2]list
	young int // which of lists new work is in; the other has that of a tick ago
	timer *time.Timer
	armed bool
}

// Entry is one piece of work in a Watch. It may be used once.
type Entry struct {
	watch      *Watch
	work       Work
	prev, next *Entry // while listed
	in         *list
	stop       func() bool // once it is registered with its context
	stopped    bool
}

// Add begins to watch work by e.
func (w *Watch) Add(e *Entry, work Work) {
	e.watch, e.work = w, work
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists[w.young].add(e)
	if !w.armed {
		w.arm()
	}
}

func (w *Watch) arm() {
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(Tick, w.tick)
		return
	}
	w.timer.Reset(Tick)
}

// Stop ends the watching. It does nothing for an entry that was never added.
// If it reports true, nothing knows of the work any more; otherwise Canceled may be
// running, or about to run.
func (e *Entry) Stop() (alone bool) {
	w := e.watch
	if w == nil {
		return true
	}
	w.mu.Lock()
	e.stopped = true
	stop := e.stop
	e.stop = nil
	if e.in != nil {
		e.in.remove(e)
		alone = true
	}
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	return alone
}

// tick registers what has been there for a tick or more.
func (w *Watch) tick() {
	for w.register() {
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if w.lists[w.young].first != nil {
		w.arm()
	}
	w.young = 1 - w.young
}

// register registers one entry with its context. The lock is not held for
// longer, so that work that begins or ends meanwhile does not wait for many.
func (w *Watch) register() bool {
	w.mu.Lock()
	old := &w.lists[1-w.young]
	e := old.first
	if e == nil {
		w.mu.Unlock()
		return false
	}
	old.remove(e)
	w.mu.Unlock()
	stop := context.AfterFunc(e.work.Context(), e.work.Canceled)
	w.mu.Lock()
	stopped := e.stopped
	if !stopped {
		e.stop = stop
	}
	w.mu.Unlock()
	if stopped {
		stop()
	}
	return true
}

// list is a list of entries, the newest first.
type list struct{ first *Entry }

func (l *list) add(e *Entry) {
	e.in, e.next = l, l.first
	if e.next != nil {
		e.next.prev = e
	}
	l.first = e
}

func (l *list) remove(e *Entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.prev, e.next, e.in = nil, nil, nil
}
