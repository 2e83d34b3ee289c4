// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/wrap"
)

// observer stands around a transport that is not ours. It ends the leases that
// the policy takes and leaves errors, and the decision on retries, as they are.
type observer struct {
	wrap.Transport
}

func newObserver(inner http.RoundTripper) *observer {
	return &observer{wrap.Transport{Inner: inner}}
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	w, t := Current(req)
	if t == nil || !t.Begin() {
		return o.Inner.RoundTrip(req)
	}
	defer t.Unwind()
	defer w.SetCookie()
	body := watch(req, &t.Attempt)
	ctx, cut := exchange.Breakable(req.Context(), &t.Attempt)
	res, err := o.Inner.RoundTrip(req.WithContext(ctx))
	now := time.Now()
	if err != nil {
		cut.End()
		drained := t.Drained()
		switch {
		case drained != nil:
			err = drained
			t.Finish(peer.None, now)
		case errors.Is(err, context.Canceled), req.Context().Err() != nil, body != nil && body.broken():
			t.Finish(peer.None, now)
		default:
			t.Fail(judge(err))
			t.Finish(peer.Failed, now)
		}
		t.Attempt.Finished(now)
		return nil, err
	}
	cut.Guard(res)
	t.Attempt.HeaderRead(now)
	t.Meet(res)
	HandBody(t, res)
	return res, nil
}

// judge says what an error of the observed transport means: the status that nginx
// records for such a try, which Caddy answers with as well unless it was the
// connection that took too long, and the cause.
func judge(err error) (status int, cause error) {
	e := exchange.Foreign("round trip", true, err)
	if e.Kind == exchange.TimedOut {
		return http.StatusGatewayTimeout, e
	}
	return http.StatusBadGateway, e
}

// HandBody makes the end of res's body the end of t's lease. It is for
// responses of transports that do not do so themselves.
func HandBody(t *Try, res *http.Response) {
	b := &leasedBody{ReadCloser: res.Body, try: t}
	t.Answered(res.StatusCode)
	if rw, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = &leasedConn{leasedBody: b, rw: rw}
		return
	}
	if res.Body == http.NoBody {
		b.end(nil)
		return
	}
	res.Body = b
}

// leasedBody is a response body that holds a lease until its end.
type leasedBody struct {
	io.ReadCloser
	try   *Try
	ended atomic.Bool
}

func (b *leasedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.try.Attempt.AddReceived(int64(n))
	b.try.Attempt.BodyRead()
	if err == io.EOF {
		b.end(nil)
	} else if err != nil {
		b.end(err)
	}
	return n, err
}

func (b *leasedBody) Close() error {
	defer b.end(exchange.ErrClosed)
	return b.ReadCloser.Close()
}

func (b *leasedBody) end(err error) {
	if b.ended.Swap(true) {
		return
	}
	if b.try.Attempt.ResponseTime() == 0 {
		b.try.Attempt.Finished(time.Now())
	}
	b.try.Ended(&b.try.Attempt, err)
}

// leasedConn is the body of a 101 response. Its lease ends when it is closed,
// not at the end of one direction.
type leasedConn struct {
	*leasedBody
	rw io.ReadWriteCloser
}

func (c *leasedConn) Read(p []byte) (int, error) {
	n, err := c.rw.Read(p)
	c.try.Attempt.AddReceived(int64(n))
	return n, err
}

func (c *leasedConn) Write(p []byte) (int, error) {
	n, err := c.rw.Write(p)
	c.try.Attempt.AddSent(int64(n))
	return n, err
}

// CloseWrite ends the direction to the server, if the connection can.
func (c *leasedConn) CloseWrite() error {
	if cw, ok := c.rw.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// watchedBody counts what is sent of the client's body, and notices when reading
// it fails, so that the server is not blamed.
type watchedBody struct {
	io.ReadCloser
	attempt *exchange.Attempt
	failed  atomic.Bool
}

func watch(req *http.Request, a *exchange.Attempt) *watchedBody {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	b := &watchedBody{ReadCloser: req.Body, attempt: a}
	req.Body = b
	return b
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.attempt.AddSent(int64(n))
	if err != nil && err != io.EOF {
		b.failed.Store(true)
	}
	return n, err
}

func (b *watchedBody) broken() bool { return b.failed.Load() }
