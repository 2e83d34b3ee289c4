// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// done counts what the try has come to, and ends its lease; what ended well is
// learned by sticky.
func (t *Try) done(o peer.Outcome, now time.Time) {
	if o == peer.Success && t.learn != nil {
		t.learn(t.Lease.Peer().SID())
	}
	stats := &t.Lease.Peer().Stats
	if n := t.Attempt.Sent(); n > 0 {
		stats.Sent.Add(uint64(n))
	}
	if n := t.Attempt.Received(); n > 0 {
		stats.Received.Add(uint64(n))
	}
	if o != peer.None {
		d := t.Attempt.ResponseTime()
		if d == 0 {
			d = now.Sub(t.Attempt.Start)
		}
		peer.Record(&stats.Response, d, now)
	}
	t.Lease.Done(o, now)
	if p := t.Attempt.Dialed; p != nil { // no exchange has taken it
		t.Attempt.Dialed = nil
		p.Keep()
	}
}

// reason is the condition that a failure stands for.
func reason(status int, cause error) peer.Conditions {
	var e *exchange.Error
	if errors.As(cause, &e) {
		switch e.Kind {
		case exchange.TimedOut:
			return peer.OnTimeout
		case exchange.InvalidHeader:
			return peer.OnInvalidHeader
		}
		return peer.OnError
	}
	if n, ok := errors.AsType[net.Error](cause); ok && n.Timeout() {
		return peer.OnTimeout
	} else if ok || errors.Is(cause, io.ErrUnexpectedEOF) || errors.Is(cause, io.EOF) {
		return peer.OnError
	}
	return peer.StatusCondition(status)
}
