// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"context"
	"errors"
	"io"
	"net"
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
func sendForeign(inner http.RoundTripper, req *http.Request, a *exchange.Attempt) (*http.Response, error) {
	var sent, bodyFailed atomic.Bool
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			a.Reused = info.Reused
			a.Connected(time.Now())
		},
		WroteHeaderField: func(string, []string) { sent.Store(true) },
	}
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &noticingBody{ReadCloser: req.Body, failed: &bodyFailed, attempt: a}
	}
	ctx, cut := exchange.Breakable(httptrace.WithClientTrace(req.Context(), trace), a)
	res, err := inner.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cut.End()
		return nil, classify(req, err, sent.Load() || !traces(inner), bodyFailed.Load())
	}
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
	e := &exchange.Error{Kind: exchange.Failed, Op: "round trip", Sent: sent, Err: err}
	var dial reverseproxy.DialError
	var timeout net.Error
	switch {
	case req.Context().Err() != nil:
		e.Kind = exchange.ClientGone
		return e
	case bodyFailed:
		e.Kind = exchange.ClientBody
		return e
	case local(err):
		e.Kind = exchange.Local
		return e
	case errors.As(err, &dial):
		e.Op, e.Sent = "connect", false
	case strings.Contains(err.Error(), "malformed"):
		e.Kind, e.Op, e.Sent = exchange.InvalidHeader, "read header", true
		return e
	}
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		e.Kind = exchange.TimedOut
	}
	return e
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
