// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/cancelwatch"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// maxInterim bounds the 1xx responses before the final one.
const maxInterim = 32

// trip is one exchange, from its request to the end of its response. It is also
// the response and its body, so that there is one object for all.
type trip struct {
	t   *Transport
	a   *exchange.Attempt
	req *http.Request
	c   *conn

	plan   plan
	buf    *buffer // the request's head, and its body if it is small
	body   *sender // sends a larger body
	unseen bool    // c has not been looked at
	wrote  bool    // some of the request may have reached the server
	heard  bool    // some of a response has been received

	resp   http.Response
	values [6]string // of the response's header, if they are few
	in     incoming

	// state tells Abort what to do; ended guards the end.
	state atomic.Int32
	ended atomic.Bool

	// client, if not nil, is told about the end by the trip itself.
	client *cancelwatch.Entry
}

const (
	inTrip int32 = iota // Exchange still runs: break its operations
	inBody              // the caller has the response: close the connection
	broken              // aborted in trip
)

// Exchange implements exchange.Exchanger.
func (t *Transport) Exchange(req *http.Request, a *exchange.Attempt) (*http.Response, error) {
	x := &trip{t: t, a: a, req: req}
	if err := x.run(); err != nil {
		return nil, err
	}
	return &x.resp, nil
}

func (x *trip) run() *exchange.Error {
	err := x.attempt()
	x.drop()
	x.buf.free()
	x.buf = nil
	if x.req.Body != nil && (x.body == nil || !x.body.orphan()) {
		_ = x.req.Body.Close()
	}
	if err != nil && err.Kind != exchange.Parked {
		now := time.Now()
		if x.a.Start.IsZero() {
			x.a.Start = now
		}
		x.a.Finished(now)
	}
	return err
}

func (x *trip) attempt() *exchange.Error {
	g, err := x.t.target(x.req, x.a.ServerName)
	if err != nil {
		return &exchange.Error{Kind: exchange.Local, Op: "connect", Err: err}
	}
	x.buf = newBuffer()
	var refused *refusal
	x.buf.b, x.plan, refused = appendHead(x.buf.b, x.req, g.host(), x.t.options)
	if refused != nil {
		return &exchange.Error{Kind: exchange.Refused, Op: "write request", Status: refused.status, Err: refused.err}
	}
	small := x.plan.framing == fixedLength && x.req.ContentLength <= smallBody
	now := time.Now()
	if x.a.Start.IsZero() {
		x.a.Start = now
	}
	c, reused := x.dialed(&g), false
	// A request without a body can be asked, and the answer tells whether the
	// connection was good. A body is not to be touched before that is known, and
	// a race is settled when a connection is there.
	unseen := x.plan.framing == noBody && x.a.Race == nil
	if c == nil {
		c = x.t.idle(&g.key, now, unseen)
		reused = c != nil
	}
	for {
		if c == nil {
			var e *exchange.Error
			if c, e = x.t.open(x, &g); e != nil {
				return e
			}
			now = time.Now()
		}
		// Not before: after a connect error the body is still whole for the
		// next server.
		if small && !x.buf.whole {
			if err := x.appendBody(); err != nil {
				c.closeNow()
				return &exchange.Error{Kind: exchange.ClientBody, Op: "write request", Err: err}
			}
			now = time.Now()
		}
		x.unseen = unseen && reused && c.asks()
		e := x.over(c, reused, now)
		switch {
		case e == noise:
			x.t.cache.noisy(c)
			now = time.Now()
			c = x.t.idle(&g.key, now, unseen)
			reused = c != nil
		case e == nil || !reused || !x.repeat(e):
			return e
		default:
			c, reused = nil, false
		}
	}
}

// noise is what over returns for errNoisy: another connection has to be taken.
var noise = &exchange.Error{Kind: exchange.Failed, Op: "send request", Err: errNoisy}

// over sends the request over c and reads the response's header.
func (x *trip) over(c *conn, reused bool, now time.Time) *exchange.Error {
	x.c, x.a.Reused = c, reused
	x.wrote, x.heard = false, false
	x.state.Store(inTrip)
	if !x.a.Attach(x) {
		c.closeNow()
		return x.gone("send request")
	}
	x.a.Connected(now)
	if x.a.Race != nil {
		x.a.Race.Connected(x.a)
	}
	c.requests++
	c.deadlines(now, x.t.sendTimeout, x.t.readTimeout)
	werr := x.send()
	if werr == errNoisy {
		if x.a.Detach() {
			return x.fail("send request", werr)
		}
		return noise
	}
	if werr != nil && !worthReading(werr) {
		return x.fail("send request", werr)
	}
	h, err := x.readHead(werr == nil)
	if err != nil {
		if werr != nil {
			return x.fail("send request", werr)
		}
		return x.fail("read header", err)
	}
	return x.deliver(&h, werr == nil)
}

// worthReading reports whether an answer may have come although sending broke:
// a server that refuses a body often answers and closes.
func worthReading(err error) bool { return !isTimeout(err) }

// send writes the head, with a small body, and starts to send a larger one.
func (x *trip) send() error {
	if x.plan.framing != noBody && x.body == nil && !x.buf.whole {
		return x.startBody()
	}
	rest := x.buf.b
	if x.c.asks() {
		n, err := x.c.ask(rest, x.unseen)
		x.sent(n)
		if rest = rest[n:]; len(rest) == 0 || err != nil {
			return err
		}
	}
	return x.write(x.c, rest)
}

func (x *trip) write(c *conn, p []byte) error {
	n, err := c.nc.Write(p)
	x.sent(n)
	return err
}

func (x *trip) sent(n int) {
	if n > 0 {
		x.wrote = true
		x.a.AddSent(int64(n))
	}
}

// fail ends the try with an error. The connection is closed.
func (x *trip) fail(op string, err error) *exchange.Error {
	aborted := x.a.Detach()
	e := &exchange.Error{Kind: answerKind(err), Op: op, Err: err}
	if x.body != nil {
		if cause := x.body.cause.Load(); cause != nil {
			e = &exchange.Error{Kind: cause.Kind, Op: cause.Op, Status: cause.Status, Err: cause.Err}
		}
	}
	x.c.closeNow()
	if x.body != nil {
		x.body.join()
	}
	if aborted {
		e = x.gone(op)
	}
	e.Sent = x.wrote
	return e
}

// gone is the error for a client that left.
func (x *trip) gone(op string) *exchange.Error {
	err := x.req.Context().Err()
	if err == nil {
		err = context.Canceled
	}
	return &exchange.Error{Kind: exchange.ClientGone, Op: op, Err: err}
}

// repeat reports whether a request that failed on a cached connection is sent
// again on a fresh one: the server had closed it, or closed it at that moment.
func (x *trip) repeat(e *exchange.Error) bool {
	if e.Kind != exchange.Failed || x.heard {
		return false
	}
	if x.a.StaleFails {
		e.Stale = true
		return false
	}
	if x.wrote && !repeatable(x.req.Method) || !x.rewind() {
		e.Stale = true
		return false
	}
	return true
}

// readHead reads the final response's header, passing interim ones on.
func (x *trip) readHead(first bool) (head, error) {
	c := x.c
	for range maxInterim + 1 {
		block, err := x.readBlock(&first)
		if err != nil {
			return head{}, err
		}
		h, err := parseHead(block, x.values[:])
		if err != nil {
			return head{}, err
		}
		switch {
		case h.code >= 200:
			return h, nil
		case h.code == http.StatusSwitchingProtocols:
			if !x.plan.upgrade || x.body != nil {
				return h, errSwitch
			}
			return h, nil
		case h.code == http.StatusContinue:
		default:
			if err := x.interim(&h); err != nil {
				return h, err
			}
		}
		c.readWithin(time.Now(), x.t.readTimeout)
	}
	return head{}, errInterim
}

// readBlock reads one header block and takes it out of the buffer.
func (x *trip) readBlock(ready *bool) (string, error) {
	c, scan := x.c, 0
	for {
		if c.w > c.r {
			with, without, next := headEnd(c.buf[c.r:c.w], scan)
			if with > 0 {
				if without == 0 {
					return "", errStatusLine
				}
				if with > x.t.headerLimit {
					return "", errTooLarge
				}
				block := string(c.buf[c.r : c.r+without])
				c.r += with
				return block, nil
			}
			scan = next
			if c.w-c.r > x.t.headerLimit {
				return "", errTooLarge
			}
			if c.w == len(c.buf) && c.r == 0 && !c.grow(2*x.t.headerLimit) {
				return "", errTooLarge
			}
		}
		if *ready {
			*ready = false // deadlines are set
		} else if x.body == nil || x.body.finished() {
			c.readWithin(time.Now(), x.t.readTimeout)
		}
		n, err := c.fill()
		if n > 0 {
			x.heard = true
			x.a.AddReceived(int64(n))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return "", errEarlyEOF
		}
		if err != nil {
			return "", err
		}
	}
}

// interim passes a 1xx response on.
func (x *trip) interim(h *head) error {
	trace := httptrace.ContextClientTrace(x.req.Context())
	if trace == nil || trace.Got1xxResponse == nil {
		return nil
	}
	return trace.Got1xxResponse(h.code, textproto.MIMEHeader(h.header))
}

// deliver makes the response. From here on Abort closes the connection.
func (x *trip) deliver(h *head, sent bool) *exchange.Error {
	x.a.HeaderRead(time.Now())
	x.a.HeadReceived(x.a.Received() - int64(x.c.w-x.c.r))
	x.in.start(x.req.Method, h, sent)
	x.resp = http.Response{
		Status: h.status, StatusCode: h.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h.header, Trailer: h.trailer,
		ContentLength: x.in.length(x.req.Method, h),
		Close:         h.close, Request: x.req,
		Body: x, TLS: x.c.tlsState,
	}
	if h.minor == 0 {
		x.resp.Proto, x.resp.ProtoMinor = "HTTP/1.0", 0
	}
	if h.chunked {
		x.resp.TransferEncoding = chunkedCoding
	}
	if h.code == http.StatusSwitchingProtocols {
		x.resp.Body = &tunnel{trip: x}
	}
	if !x.state.CompareAndSwap(inTrip, inBody) {
		return x.fail("read header", context.Canceled)
	}
	return nil
}

var chunkedCoding = []string{"chunked"}

// Abort implements exchange.Aborter. The attempt's lock is held.
func (x *trip) Abort() {
	if x.state.CompareAndSwap(inTrip, broken) {
		x.c.abort()
		return
	}
	x.c.aborted.Store(true)
	x.c.closeNow()
	// The caller may have panicked before it closes the body.
	go x.end(context.Canceled, time.Now())
}

// release gives the connection back, to the cache if it can be used again.
func (x *trip) release(err error, now time.Time) {
	c := x.c
	aborted := x.a.Detach()
	reusable := err == nil && !aborted && !x.a.NoReuse && x.in.reusable()
	if x.body != nil && !x.body.settled(reusable) {
		reusable = false
	}
	if reusable && !c.aborted.Load() && c.quiet() {
		x.t.keep(c, now)
		return
	}
	c.closeNow()
	if x.body != nil {
		x.body.join()
	}
}

// end tells the attempt's owner, once.
func (x *trip) end(err error, now time.Time) {
	if !x.ended.CompareAndSwap(false, true) {
		return
	}
	x.a.Finished(now)
	if x.client != nil {
		x.client.Stop()
	}
	if x.a.Ender != nil {
		x.a.Ender.Ended(x.a, err)
	}
}
