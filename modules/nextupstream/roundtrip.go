// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// Error is the end of a walk without an answer: 504 for the client if Timeout,
// 502 otherwise. It does not unwrap, so that Caddy finds nothing in it to go
// by.
type Error struct {
	err     error
	timeout bool
}

func (e *Error) Error() string {
	// Caddy takes this text for a client that has left
	return strings.ReplaceAll(e.err.Error(), "operation was canceled", "canceled")
}

// Timeout implements net.Error; Caddy asks it for the status.
func (e *Error) Timeout() bool { return e.timeout }

// Temporary implements net.Error.
func (e *Error) Temporary() bool { return false }

// RoundTrip sends the current try of the request's walk to its server.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	w, try := upstream.Current(req)
	if w == nil { // Caddy's active health checks
		return t.Inner.RoundTrip(req)
	}
	race := t.raceFor(w, try)
	res, err := t.roundTrip(req, w, try, race)
	if !goesOn(err) {
		w.SetCookie()
		if race != nil {
			race.settle()
		}
		b, once := w.Extra.(*onceBody)
		if once && b.outstanding() && (res == nil || res.StatusCode != http.StatusSwitchingProtocols) {
			w.AnswerEarly()
		}
	}
	return res, err
}

// goesOn reports whether the error makes Caddy ask for the next server.
func goesOn(err error) bool {
	_, next := err.(reverseproxy.DialError)
	return next
}

func (t *Transport) roundTrip(req *http.Request, w *upstream.Walk, try *upstream.Try, race *race) (*http.Response, error) {
	switch {
	case w.Err != nil:
		w.End()
		return nil, w.Err
	case try.Lease == nil:
		giveUp(w, req)
		return nil, &Error{err: try.Err}
	case !try.Begin():
		return nil, context.Canceled
	}
	defer try.Unwind()
	var unbuffered *turn
	if req.Body != http.NoBody {
		switch b := w.Extra.(type) {
		case *spool:
			req.Body = b.reader()
		case *onceBody:
			unbuffered = &turn{body: b}
			req.Body = unbuffered
		}
	}
	res, err := t.send(req, try, race)
	if err != nil {
		return nil, t.failed(w, try, unbuffered, req, err)
	}
	if t.replace(w, try, unbuffered, req, res) {
		return nil, reverseproxy.NewDialError(fmt.Errorf("status %d: trying the next upstream", res.StatusCode))
	}
	try.Meet(res)
	if t.exchanger != nil {
		try.Answered(res.StatusCode)
	} else {
		upstream.HandBody(try, res)
	}
	return res, nil
}

// send asks the server. The error is an *exchange.Error.
func (t *Transport) send(req *http.Request, try *upstream.Try, race *race) (*http.Response, error) {
	if t.exchanger == nil {
		return sendForeign(t.Inner, t.limits, req, &try.Attempt)
	}
	try.Attempt.Ender = try
	try.Attempt.StaleFails = t.staleFails
	if t.TLSEnabled() {
		try.Attempt.ServerName = upstream.HostOf(try.Lease.Peer().Server().Line)
	}
	if race != nil {
		try.Attempt.Race = race
	}
	return t.exchanger.Exchange(req, &try.Attempt)
}

// replace gives a response up for the next server, if it is of a kind for
// which one is asked and there is one.
func (t *Transport) replace(w *upstream.Walk, try *upstream.Try, body *turn, req *http.Request, res *http.Response) bool {
	event := peer.StatusCondition(res.StatusCode)
	if event == 0 {
		return false
	}
	now := time.Now()
	if !body.pass(func() bool { return w.Session.MayReplace(&t.policy, event, progress(w, req, true), now) }) {
		return false
	}
	outcome := peer.Failed
	if event&(peer.On403|peer.On404) != 0 {
		outcome = peer.Next
	}
	try.Attempt.NoReuse = outcome == peer.Failed
	try.Fail(res.StatusCode, fmt.Errorf("status %d", res.StatusCode))
	try.Finish(outcome, now)
	res.Body.Close()
	finished(&try.Attempt)
	return true
}

// failed ends a try that brought no response, and says what becomes of the
// request.
func (t *Transport) failed(w *upstream.Walk, try *upstream.Try, body *turn, req *http.Request, err error) error {
	var e *exchange.Error
	if !errors.As(err, &e) {
		e = &exchange.Error{Kind: exchange.Failed, Op: "round trip", Sent: true, Err: err}
	}
	if e.Kind == exchange.Parked {
		return errRace
	}
	finished(&try.Attempt)
	if drained := try.Drained(); drained != nil {
		e = &exchange.Error{Kind: exchange.Failed, Op: e.Op, Sent: e.Sent, Err: drained}
		return t.ended(w, try, body, req, e, peer.OnError, http.StatusBadGateway, peer.None)
	}
	event, status, outcome := judge(e)
	if outcome == peer.None {
		try.Finish(peer.None, time.Now())
		w.End()
		return notTheServer(w, req, e)
	}
	if e.Stale {
		outcome = peer.Stale
	}
	return t.ended(w, try, body, req, e, event, status, outcome)
}

// ended ends a try for a reason that next_upstream knows.
func (t *Transport) ended(w *upstream.Walk, try *upstream.Try, body *turn, req *http.Request, e *exchange.Error, event peer.Conditions, status int, outcome peer.Outcome) error {
	now := time.Now()
	try.Fail(status, e)
	try.Finish(outcome, now)
	var next bool
	if body.pass(func() bool { next, e = t.follow(w, req, event, e, now); return next }) {
		return reverseproxy.NewDialError(&Error{err: e})
	}
	if e.Kind == exchange.ClientGone { // while a slow connection was waited for
		w.End()
		return notTheServer(w, req, e)
	}
	giveUp(w, req)
	return &Error{err: e, timeout: e.Kind == exchange.TimedOut}
}

// judge says what the end of a try without a response means.
func judge(e *exchange.Error) (event peer.Conditions, status int, outcome peer.Outcome) {
	switch e.Kind {
	case exchange.Failed:
		return peer.OnError, http.StatusBadGateway, peer.Failed
	case exchange.TimedOut:
		return peer.OnTimeout, http.StatusGatewayTimeout, peer.Failed
	case exchange.InvalidHeader:
		return peer.OnInvalidHeader, http.StatusBadGateway, peer.Failed
	}
	return 0, 0, peer.None
}

// giveUp ends a walk that found no server to answer. The body is kept for the
// handler of the error.
func giveUp(w *upstream.Walk, req *http.Request) {
	if s, ok := w.Extra.(*spool); ok {
		s.keep(req.Context())
	}
	w.End()
}

// notTheServer returns the result of a try that ended for reasons that are no
// server's.
func notTheServer(w *upstream.Walk, req *http.Request, e *exchange.Error) error {
	switch e.Kind {
	case exchange.ClientGone:
		return clientGone(e.Op)
	case exchange.ClientBody:
		return bodyError(req, e.Err)
	case exchange.Refused:
		w.Forget()
		return caddyhttp.Error(e.Status, &Error{err: e})
	default:
		w.Forget()
		return caddyhttp.Error(http.StatusInternalServerError, &Error{err: e})
	}
}

// clientGone is the result when nobody waits for an answer any more.
func clientGone(doing string) error {
	return fmt.Errorf("%s: the client has gone: %w", doing, context.Canceled)
}

// progress says how far a try had come.
func progress(w *upstream.Walk, req *http.Request, sent bool) peer.Progress {
	p := peer.Progress{Sent: sent, Replayable: true}
	if b, ok := w.Extra.(body); ok {
		p.Replayable = b.replayable()
	}
	switch req.Method {
	case http.MethodPost, http.MethodPatch, "LOCK":
	default:
		p.Idempotent = true
	}
	return p
}

func finished(a *exchange.Attempt) {
	if a.ResponseTime() == 0 {
		a.Finished(time.Now())
	}
}
