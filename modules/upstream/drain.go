// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"time"
)

// A server that is drained, set down or removed may finish what it has. With
// drain_timeout what is open at its end is closed: a request that has no
// response yet goes to the next server, if it may be sent again, and counts
// against none; a response that has begun, a WebSocket and a session of a stream
// break.

// errDrained is why a try of such a server ended.
var errDrained = errors.New("the server is drained, and its drain_timeout is over")

// closeAtLocked closes at that time what servers hold too long; zero: nothing is to
// be closed.
func (r *Runtime) closeAtLocked(at time.Time) {
	if r.closing != nil {
		r.closing.Stop()
		r.closing = nil
	}
	if !at.IsZero() && !r.ended {
		r.closing = time.AfterFunc(time.Until(at), r.closeOverdue)
	}
}

func (r *Runtime) closeOverdue() {
	r.group.CloseOverdue(time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeAtLocked(r.group.NextClose(time.Now()))
}

// hasten gives servers that have just been taken out another time to finish; nil:
// their own.
func (r *Runtime) hasten(out []*Peer, d *time.Duration) {
	if d == nil {
		return
	}
	for _, p := range out {
		r.group.CloseAfter(p, closeAfter(*d))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeAtLocked(r.group.NextClose(time.Now()))
}

// Abort implements peer.Aborter: the server is to hold nothing any more.
func (t *Try) Abort() {
	t.drained.Store(true)
	t.Attempt.Abort()
}

// Drained reports whether the try was ended because the time of its server is
// over, and says so in an error. The client is still there.
func (t *Try) Drained() error {
	if !t.drained.Load() || t.walk.request.Context().Err() != nil {
		return nil
	}
	return errDrained
}
