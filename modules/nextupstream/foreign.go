// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// sendForeign makes a round trip over a transport that is not ours and finds
// out what it can: from httptrace how far it came, from the error what went
// wrong.
func sendForeign(inner http.RoundTripper, limits limits, req *http.Request, a *exchange.Attempt) (*http.Response, error) {
	var sent, bodyFailed atomic.Bool
	limiter := &limiter{limits: limits}
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			a.Reused = info.Reused
			a.Connected(time.Now())
			limiter.next("send request", 0)
		},
		WroteHeaderField: func(string, []string) { sent.Store(true) },
		WroteRequest:     func(httptrace.WroteRequestInfo) { limiter.sent() },
	}
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &noticingBody{ReadCloser: req.Body, failed: &bodyFailed, attempt: a}
	}
	ctx, cut := exchange.Breakable(httptrace.WithClientTrace(req.Context(), trace), a)
	limiter.abort = cut.Abort
	limiter.next(connecting, limiter.connect)
	res, err := inner.RoundTrip(req.WithContext(ctx))
	for limiter.connect > 0 && errors.Is(err, context.Canceled) && ctx.Err() == nil && !sent.Load() {
		// Over HTTP/3 several requests wait for one connection, and it is given up
		// with the client of the first.
		res, err = inner.RoundTrip(req.WithContext(ctx))
	}
	late := limiter.pause()
	switch {
	case late != nil && req.Context().Err() == nil:
		cut.End()
		if err == nil {
			res.Body.Close()
		}
		return nil, late
	case err != nil:
		cut.End()
		return nil, classify(req, err, sent.Load() || !traces(inner), bodyFailed.Load())
	}
	limiter.guard(res)
	cut.Guard(res)
	if res.StatusCode < 100 || res.StatusCode > 999 {
		res.Body.Close()
		return nil, &exchange.Error{Kind: exchange.InvalidHeader, Op: "read header", Sent: true, Err: errors.New("status out of range")}
	}
	a.HeaderRead(time.Now())
	return res, nil
}

// traces reports whether inner tells httptrace how far it came. Of any other
// transport all must be taken for sent that did not fail to connect: FastCGI
// would get a POST twice.
func traces(inner http.RoundTripper) bool {
	_, ok := inner.(*reverseproxy.HTTPTransport)
	return ok
}

// noticingBody notices when reading the client's body fails.
type noticingBody struct {
	io.ReadCloser
	failed  *atomic.Bool
	attempt *exchange.Attempt
}

func (b *noticingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.attempt.AddSent(int64(n))
	if err != nil && err != io.EOF {
		b.failed.Store(true)
	}
	return n, err
}

func classify(req *http.Request, err error, sent, bodyFailed bool) *exchange.Error {
	var dial reverseproxy.DialError
	switch {
	case req.Context().Err() != nil:
		return &exchange.Error{Kind: exchange.ClientGone, Op: "round trip", Sent: sent, Err: err}
	case bodyFailed:
		return &exchange.Error{Kind: exchange.ClientBody, Op: "round trip", Sent: sent, Err: err}
	case local(err):
		return &exchange.Error{Kind: exchange.Local, Op: "round trip", Sent: sent, Err: err}
	case errors.As(err, &dial):
		return exchange.Foreign("connect", false, err)
	}
	return exchange.Foreign("round trip", sent, err)
}

// local reports whether this machine could not even try. Caddy's DialError hides
// what it wraps, but for the text.
func local(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		if errors.Is(err, errno) || strings.HasSuffix(err.Error(), errno.Error()) {
			return true
		}
	}
	return false
}
