// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-upstream/caddy-upstream/internal/cancelwatch"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Walk is one request's way over a group, for one reverse_proxy handler: from
// the first Select to the last round trip. Another handler of the same request
// makes another walk.
type Walk struct {
	// Session is the engine's side of the walk.
	Session peer.Session

	// Err, if set, is what the round trip shall return without asking any
	// server: the request's body could not be read, say.
	Err error

	// Extra belongs to the transport; it is released when the walk ends.
	Extra Releaser

	record  *Record
	earlier *Walk // of the same request, by another handler
	nth     int32 // of the request's walks
	again   bool  // there is more than one try
	// affinity, nil without sticky, binds the client to latest, the server of
	// the last try that had one, by a cookie in writer's header.
	affinity *Affinity
	latest   *peer.Peer
	writer   http.ResponseWriter
	cookie   string
	// request is the one that Select saw: the same pointer is the same walk.
	request *http.Request
	watched cancelwatch.Entry
	// canceled is set before Canceled looks at the tries.
	canceled atomic.Bool
	ended    atomic.Bool

	mu   sync.Mutex // guards what follows
	try  *Try
	next *Try // what the next Select returns; nil: it picks
	race Race

	first *Try // room for the first try, until it is used
}

// opening is what a request keeps of its first walk: as long as it lasts, its
// placeholders and its access log ask for the record.
type opening struct {
	record Record
	try    Try
}

// walks are those that came to a plain end, to be used again: a walk is the largest
// object that a request would need by itself, and what was in use a moment ago is
// in the processor's cache. BenchmarkSelect shows what it saves.
var walks = sync.Pool{New: func() any { return new(Walk) }}

// Releaser is what a transport keeps for the length of a walk.
type Releaser interface{ Release() }

// Try is one pick of a walk and what became of it. Its lease ends exactly
// once: by Finish, or when the client has gone.
type Try struct {
	// Lease is nil if no peer could be picked, and Err says why.
	Lease *peer.Lease
	Err   error
	// Attempt is what the transport reports.
	Attempt exchange.Attempt

	walk *Walk // nil once the walk has been used again
	addr string
	// header and cookies are those of the response that goes to the client.
	header  http.Header
	cookies []string
	learn   func(sid string)
	status  atomic.Int32
	state   atomic.Int32
	drained atomic.Bool // Abort has been called
	nth     int32       // of the walk
}

// The states of a try's lease.
const (
	picked   int32 = iota // Caddy may still stop before the round trip
	inFlight              // the round trip ends it
	ended                 // the exchange is over, but the round trip has yet to judge it
	inBody                // the response's body ends it, or the client's leaving
	parked                // its connection is still being made, and its end ends the lease
	finished
)

const recordKey = "upstream.record"

// currentWalk returns the walk of the request's last Select, nil if none.
func currentWalk(ctx context.Context) *Walk {
	if r := recordOf(ctx); r != nil {
		return r.current
	}
	return nil
}

// walkOf returns the walk that r continues, or begins one.
func (s *selector) walkOf(rw http.ResponseWriter, r *http.Request) (w *Walk, begun bool) {
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	record, _ := vars[recordKey].(*Record)
	if record != nil && record.current != nil && record.current.request == r {
		return record.current, false
	}
	w = walks.Get().(*Walk)
	w.request, w.affinity, w.writer = r, s.affinity, rw
	if record == nil {
		o := new(opening)
		record, w.first = &o.record, &o.try
		if vars != nil {
			vars[recordKey] = record
		}
		record.publish(r.Context())
	}
	w.record = record
	record.add(w, s.runtime.group.Name())
	w.Session.Begin(s.runtime.group, s.options(r))
	s.clients.Add(&w.watched, w)
	return w, true
}

// nextTry picks a peer for a further try of the walk; it may have to wait for
// one. When the client leaves meanwhile there is no try. Caddy, where it decides
// on retries, may ask again when there was no peer: that is the same try.
func (w *Walk) nextTry(ctx context.Context) (*Try, error) {
	if t := w.handedOut(); t != nil {
		return t, nil
	}
	lease, err := w.pick(ctx)
	if err == errHandedOut {
		return w.handedOut(), nil
	}
	if err != nil && !errors.Is(err, peer.ErrNoPeers) && err != peer.ErrQueueFull {
		return nil, err
	}
	if w.try != nil && w.try.Lease == nil && err != nil {
		return w.try, err
	}
	t := w.newTry()
	if err != nil {
		t.Err, t.addr = err, w.Session.Group().Name()
		t.status.Store(http.StatusBadGateway)
		t.state.Store(finished)
	} else {
		t.hold(lease)
		w.latest = lease.Peer()
	}
	w.record.addTry(t)
	w.mu.Lock()
	w.try = t
	w.mu.Unlock()
	// Finish ends the walk, and so the watching, when the client has gone.
	if w.again && w.left() || w.canceled.Load() {
		t.abandon()
	}
	return t, err
}

// newTry returns a try without a lease.
func (w *Walk) newTry() *Try {
	t := w.first
	if w.first = nil; t == nil {
		t = new(Try)
	}
	w.again = w.try != nil
	t.walk, t.nth = w, w.nth
	return t
}

// errHandedOut: no server is picked, for one that was asked before is connected.
var errHandedOut = errors.New("a connection made before is there")

// pick picks a server. When there is none, one that is still being connected is
// waited for first.
func (w *Walk) pick(ctx context.Context) (*peer.Lease, error) {
	w.mu.Lock()
	race := w.race
	w.mu.Unlock()
	if race == nil {
		return Pick(ctx, &w.Session, time.Now())
	}
	lease, err := w.Session.Next(time.Now())
	switch {
	case err == nil:
		return lease, nil
	case race.Await():
		return nil, errHandedOut
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case w.Session.Group().QueueTimeout() == 0:
		return nil, err
	}
	return Pick(ctx, &w.Session, time.Now())
}

// Context implements cancelwatch.Work.
func (w *Walk) Context() context.Context { return w.request.Context() }

// Canceled implements cancelwatch.Work. It runs when the request's context ends
// before the walk has: the client has left, or Caddy stopped between the steps
// of a try.
func (w *Walk) Canceled() {
	w.canceled.Store(true)
	w.mu.Lock()
	t, next, race := w.try, w.next, w.race
	w.mu.Unlock()
	if race != nil { // first: a round trip that is aborted settles the race
		race.Cancel()
	}
	for _, t := range [...]*Try{t, next} {
		if t != nil {
			t.abandon()
		}
	}
}

// End tells that no further try will follow. It may be called more than once.
func (w *Walk) End() { w.end() }

// end reports whether nobody can end the walk any more, now or later.
func (w *Walk) end() (alone bool) {
	alone = w.watched.Stop()
	if !w.ended.CompareAndSwap(false, true) {
		return false
	}
	if w.Extra != nil {
		w.Extra.Release()
	}
	return alone
}

// leave ends a walk whose only try t has ended well, and lets it be used again if
// that is all that there was to it: nobody else knows of it then.
func (w *Walk) leave(t *Try) {
	if !w.end() || w.again || w.race != nil || w.Extra != nil || w.record.current != w {
		return
	}
	w.record.current = w.earlier
	t.walk, t.Lease = nil, nil // the lease is the session's
	*w = Walk{}
	walks.Put(w)
}

// AnswerEarly lets the answer go out although the client of an HTTP/1 connection
// has not sent all of its body. net/http would wait for the rest of it, or for
// what is being read of it, before the first byte of the answer. What follows on
// the connection need not be a request then, so it is the connection's last
// answer, as in nginx.
func (w *Walk) AnswerEarly() {
	if w.writer == nil || w.request.ProtoMajor != 1 {
		return
	}
	if http.NewResponseController(w.writer).EnableFullDuplex() == nil {
		w.writer.Header().Set("Connection", "close")
	}
}

// Earlier returns the Extra of the latest walk of the same request, by another
// handler, that had one: what it kept of the request's body, say.
func (w *Walk) Earlier() Releaser {
	for x := w.record.current; x != nil; x = x.earlier {
		if x != w && x.Extra != nil {
			return x.Extra
		}
	}
	return nil
}

// Forget takes the current try out of the record: no server was asked.
func (w *Walk) Forget() {
	w.record.tries = w.record.tries[:len(w.record.tries)-1]
}

// Try returns the current try; nil before the first.
func (w *Walk) Try() *Try { return w.try }

// abandon ends a try whose client has gone, as far as it can be ended from
// outside.
func (t *Try) abandon() {
	if t.Lease != nil && t.state.CompareAndSwap(picked, finished) {
		t.done(peer.None, time.Now())
		t.walk.End()
		return
	}
	t.Attempt.Abort() // a round trip in flight sees it and ends the lease
	switch t.state.Load() {
	case inBody:
		t.Finish(peer.Success, time.Now())
		t.walk.End()
	case finished, parked: // between two tries, or no server: no round trip may follow
		t.walk.End()
	}
}

// Unwind ends a try whose round trip ends without a result, because it panics.
// It is deferred after Begin and does nothing otherwise.
func (t *Try) Unwind() {
	if t.state.CompareAndSwap(inFlight, finished) || t.state.CompareAndSwap(ended, finished) {
		t.done(peer.None, time.Now())
		t.walk.End()
	}
}

// Begin marks the start of the round trip. It reports false if the client has
// gone: the lease has ended then.
func (t *Try) Begin() bool {
	if t.walk.left() {
		t.abandon()
	}
	return t.state.CompareAndSwap(picked, inFlight)
}

// Answered marks that the response goes to the client: from now on the lease
// ends with the body, or with the client's leaving.
func (t *Try) Answered(status int) {
	t.status.Store(int32(status))
	if t.Lease != nil {
		t.Lease.Peer().Stats.Answered(status)
	}
	if d := t.Attempt.HeaderTime(); d > 0 && t.Lease != nil {
		now := t.Attempt.Start.Add(d)
		peer.Record(&t.Lease.Peer().Stats.Header, d, now)
		t.Lease.Observe(peer.FirstByte, d, now)
		t.Lease.Observe(peer.Connect, d, now)
	}
	if !t.state.CompareAndSwap(inFlight, inBody) {
		if t.state.Load() == ended {
			t.Finish(peer.Success, time.Now())
			t.walk.End()
		}
		return
	}
	if t.walk.canceled.Load() { // before it could see that the body is there
		t.abandon()
	}
}

// Fail records the status of a try that brought no response, and its cause.
func (t *Try) Fail(status int, cause error) {
	t.status.Store(int32(status))
	t.Lease.Cause, t.Lease.Reason = cause, reason(status, cause)
	if peer.StatusCondition(status) == t.Lease.Reason && t.Lease.Reason != 0 {
		t.Lease.Peer().Stats.Answered(status) // a response that is given up for another
	}
}

// Finish ends the lease. Only the first call counts.
func (t *Try) Finish(o peer.Outcome, now time.Time) {
	if t.state.Swap(finished) == finished {
		return
	}
	t.done(o, now)
	if o != peer.Success && t.walk.left() {
		// The client left while the try was in flight, so that nobody else ends
		// the walk if Caddy does not ask for a further try.
		t.walk.End()
	}
}

// left reports whether the client has gone. Where it says no, Canceled is still
// to come when the client leaves.
func (w *Walk) left() bool { return w.request.Context().Err() != nil }

// Ended implements exchange.Ender: the response's body has been read, or will
// not be. What breaks after the response header is no failure of the server, but is
// counted.
func (t *Try) Ended(a *exchange.Attempt, err error) {
	if err != nil && !errors.Is(err, exchange.ErrClosed) && !errors.Is(err, context.Canceled) && !a.Aborted() && !t.walk.left() {
		t.Lease.Peer().Stats.Broken.Add(1)
	}
	if t.state.CompareAndSwap(inFlight, ended) {
		return
	}
	if t.state.CompareAndSwap(inBody, finished) {
		t.done(peer.Success, a.Start.Add(a.ResponseTime()))
		// An Exchanger tells of a good end when the body is read or closed, after the
		// front has returned the response: it needs the walk no more.
		exchanged := a.Ender != nil && t.status.Load() != http.StatusSwitchingProtocols
		if w := t.walk; err == nil && exchanged {
			w.leave(t)
		} else {
			w.End()
		}
	}
}
