// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"time"
)

// ErrQueued is returned by NextOrWait when the session waits; ErrQueueFull
// when it would have to and too many others do.
var (
	ErrQueued    = errors.New("waiting for an upstream server")
	ErrQueueFull = errors.New("no live upstreams, and the queue is full")
)

// Waiter is a session's place in the queue of its group. Whoever waits brings
// it and looks after time limits itself.
type Waiter struct {
	// Ready is called, without a lock, once a peer has been picked for the
	// session; it must not block. Then Leave returns the lease.
	Ready func()

	session    *Session
	lease      *Lease
	prev, next *Waiter
	queued     bool
}

// queue holds the waiters of a group in order of arrival.
type queue struct {
	limit       int
	n           int
	first, last *Waiter
	served      []*Waiter // to be told when the lock is released
}

func (q *queue) push(w *Waiter) {
	w.prev, w.next, w.queued = q.last, nil, true
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.n++
}

func (q *queue) remove(w *Waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.n--
}

// NextOrWait is Next in a group with a queue: when no peer can be picked now,
// the session waits in w until one can, after all that came before. The session
// must not be used until w.Ready was called or w.Leave has returned.
func (s *Session) NextOrWait(w *Waiter, now time.Time) (*Lease, error) {
	g := s.group
	g.mu.Lock()
	defer g.unlockAt(now)
	l, err := g.nextLocked(s, now)
	switch {
	case err == nil:
		return l, nil
	case err != ErrNoPeers || g.queue.limit == 0:
		g.refused++
		return nil, err
	case g.queue.n >= g.queue.limit:
		g.refused++
		return nil, ErrQueueFull
	}
	w.session, w.lease = s, nil
	g.queue.push(w)
	return nil, ErrQueued
}

// QueueTimeout is the Config.QueueTimeout in force.
func (g *Group) QueueTimeout() time.Duration { return time.Duration(g.patience.Load()) }

// Leave ends the wait. It returns the lease that the session was given, or nil
// if it was given none and will not be.
func (w *Waiter) Leave() *Lease {
	if w.session == nil {
		return nil
	}
	g := w.session.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.queued {
		g.queue.remove(w)
	}
	return w.lease
}

// Wake serves the queue with what time has brought back. It returns when it
// should be called again for the sake of those who wait; zero: no time out is
// running.
func (g *Group) Wake(now time.Time) (next time.Time) {
	g.mu.Lock()
	defer g.unlockAt(now)
	g.advanceLocked(now)
	if len(g.back) > 0 {
		next = g.back[0].at.Add(1) // a time out includes its last moment
	}
	return next
}

// serveLocked gives peers to those who wait, in order, as long as there are any.
// Who has tried the peers that are left, or hints at another, is passed over.
func (g *Group) serveLocked(now time.Time) {
	g.advanceLocked(now)
	for w := g.queue.first; w != nil; {
		if g.lists[0].eligible+g.lists[1].eligible == 0 && w.session.opts.Hint == "" {
			return
		}
		next := w.next
		if l, err := g.leaseLocked(w.session, w.session.picked, now); err == nil {
			g.queue.remove(w)
			w.lease = l
			g.queue.served = append(g.queue.served, w)
		}
		w = next
	}
}
