// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// errRace makes Caddy ask for the next server while connections are being made.
var errRace = reverseproxy.NewDialError(errors.New("connect_hedge: the request goes on with another server"))

// race is connect_hedge for one walk: the connections that are being made, or
// have been, besides the one that the current round trip waits for. Caddy asks
// for the headers of one server at a time, so each change of server ends the
// round trip, and the next Select hands out the server that it goes on with.
//
// Once there is a connection to send the request over, the others go on alone.
type race struct {
	t   *Transport
	w   *upstream.Walk
	try *upstream.Try // the current one

	// wake is made with the first parked connection, and says that something
	// has become of one.
	wake chan struct{}

	mu        sync.Mutex // guards what follows
	parked    []*runner
	open      bool // the request needs a connection
	cancelled bool // the client has gone meanwhile
	last      *exchange.Error
}

// runner is a parked connection.
type runner struct {
	try       *upstream.Try
	pending   exchange.Pending
	connected bool
}

// checkHedge says why connect_hedge would do nothing.
func (t *Transport) checkHedge() error {
	if t.ConnectHedge == 0 {
		return nil
	}
	delay := time.Duration(t.ConnectHedge)
	inner, ok := t.Inner.(exchange.Racer)
	switch {
	case !ok:
		return errors.New("connect_hedge does nothing over this transport, which makes its connections by itself: it is for HTTP/1 servers and upstream_keepalive")
	case delay >= inner.ConnectLimit():
		return fmt.Errorf("connect_hedge %s does nothing: it must be shorter than connect_timeout, which is %s", delay, inner.ConnectLimit())
	case t.Tries == 1:
		return errors.New("connect_hedge does nothing with one try for each request")
	}
	return nil
}

// raceFor returns the race that try takes part in, nil without connect_hedge.
func (t *Transport) raceFor(w *upstream.Walk, try *upstream.Try) *race {
	if t.ConnectHedge == 0 {
		return nil
	}
	r, _ := w.Racing().(*race)
	if r == nil {
		r = &race{t: t, w: w}
	}
	r.try = try
	return r
}

// Wait implements exchange.Race.
func (r *race) Wait(_ *exchange.Attempt, p exchange.Pending) bool {
	delay := time.Duration(r.t.ConnectHedge)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	r.begin()
	for {
		select {
		case <-p.Done():
			return true
		default:
		}
		if r.resume(func() { r.park(p) }) {
			return false
		}
		select {
		case <-p.Done():
			return true
		case <-r.wake:
		case <-timer.C:
			if r.hedge(p) {
				return false
			}
			timer.Reset(delay) // there may be a server by then
		}
	}
}

// hedge asks one more server, if there is one and a try for it.
func (r *race) hedge(p exchange.Pending) bool {
	now := time.Now()
	if !r.w.Session.MayHedge(&r.t.policy, now) || r.w.Hedge(r.try, now) != nil {
		return false
	}
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
		r.w.Compete(r)
	}
	r.park(p)
	return true
}

// park leaves the current try's connection to itself.
func (r *race) park(p exchange.Pending) {
	x := &runner{try: r.try, pending: p}
	x.try.Park(time.Now())
	r.mu.Lock()
	r.parked = append(r.parked, x)
	cancelled := r.cancelled
	r.mu.Unlock()
	p.Park(func(err *exchange.Error) { r.ended(x, err) })
	if cancelled {
		p.Abort()
	}
}

// ended is called when a parked connection is there or has failed.
func (r *race) ended(x *runner, err *exchange.Error) {
	if err != nil {
		finished(&x.try.Attempt)
		_, status, outcome := judge(err)
		if outcome != peer.None {
			x.try.Fail(status, err)
		}
		x.try.Finish(outcome, time.Now())
	}
	r.mu.Lock()
	x.connected = err == nil
	if err != nil && err.Kind != exchange.ClientGone {
		r.last = err
	}
	if err != nil || !r.open {
		r.removeLocked(x)
	}
	late := err == nil && !r.open
	r.mu.Unlock()
	if late {
		x.letGo()
	}
	r.notify()
}

// letGo keeps a connection that came too late for this request.
func (x *runner) letGo() {
	x.pending.Keep()
	finished(&x.try.Attempt)
	x.try.Finish(peer.None, time.Now())
}

func (r *race) removeLocked(x *runner) {
	if i := slices.Index(r.parked, x); i >= 0 {
		r.parked = slices.Delete(r.parked, i, i+1)
	}
}

func (r *race) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// begin says that a connection is needed. It reports false if nobody needs it
// any more.
func (r *race) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = !r.cancelled
	return r.open
}

// resume hands a parked connection that is there to the walk, after before. It
// reports false if there is none.
func (r *race) resume(before func()) bool {
	r.mu.Lock()
	i := slices.IndexFunc(r.parked, func(x *runner) bool { return x.connected })
	if i < 0 {
		r.mu.Unlock()
		return false
	}
	x := r.parked[i]
	r.parked = slices.Delete(r.parked, i, i+1)
	r.mu.Unlock()
	before()
	x.try.Attempt.Dialed = x.pending
	x.try.Resume(time.Now())
	return true
}

// underway reports whether anything is parked.
func (r *race) underway() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.parked) > 0
}

// Await implements upstream.Race.
func (r *race) Await() bool {
	for r.begin() {
		if r.resume(func() {}) {
			return true
		}
		if !r.underway() {
			return false
		}
		<-r.wake
	}
	return false
}

// Connected implements exchange.Race: the request needs no other connection.
func (r *race) Connected(*exchange.Attempt) { r.settle() }

// settle leaves what is parked to itself.
func (r *race) settle() {
	r.mu.Lock()
	r.open = false
	late := r.takeConnectedLocked()
	r.mu.Unlock()
	for _, x := range late {
		x.letGo()
	}
}

func (r *race) takeConnectedLocked() (out []*runner) {
	for _, x := range slices.Clone(r.parked) {
		if x.connected {
			out = append(out, x)
			r.removeLocked(x)
		}
	}
	return out
}

// Cancel implements upstream.Race.
func (r *race) Cancel() {
	r.mu.Lock()
	r.cancelled = true
	if !r.open { // what is parked goes on alone
		r.mu.Unlock()
		return
	}
	r.open = false
	late := r.takeConnectedLocked()
	rest := slices.Clone(r.parked)
	r.mu.Unlock()
	for _, x := range late {
		x.letGo()
	}
	for _, x := range rest {
		x.pending.Abort()
	}
	r.notify()
}

// lastError is what the connections that were waited for have ended with, e if
// none has.
func (r *race) lastError(e *exchange.Error) *exchange.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cancelled:
		return &exchange.Error{Kind: exchange.ClientGone, Op: "connect", Err: context.Canceled}
	case r.last != nil:
		return r.last
	}
	return e
}

// follow decides what follows a failed try: whether Caddy shall ask for the
// next server, and the error that the walk ends with if not.
func (t *Transport) follow(w *upstream.Walk, req *http.Request, event peer.Conditions, e *exchange.Error, now time.Time) (next bool, end *exchange.Error) {
	p := progress(w, req, e.Sent)
	r, _ := w.Racing().(*race)
	awaits := r != nil && r.underway() && w.Session.MayAwait(&t.policy, event, p, now)
	switch {
	case awaits && r.resume(func() {}), w.Session.MayRetry(&t.policy, event, p, now):
		return true, e
	case !awaits:
		return false, e
	case r.Await():
		return true, e
	}
	return false, r.lastError(e)
}
