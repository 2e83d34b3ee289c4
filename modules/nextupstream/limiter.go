// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// limits are limits on time that a transport leaves to us; 0 is none.
type limits struct {
	connect time.Duration // until there is a connection
	header  time.Duration // from the end of the request to the response header
	read    time.Duration // for each read from the response's body
}

// limitsOf returns those of Caddy's transport over HTTP/3, which has them in its
// configuration but does not keep them: a server that is silent would be waited
// for without end.
func limitsOf(inner http.RoundTripper) limits {
	h, ok := inner.(*reverseproxy.HTTPTransport)
	if !ok || !slices.Equal(h.Versions, []string{"3"}) {
		return limits{}
	}
	return limits{time.Duration(h.DialTimeout), time.Duration(h.ResponseHeaderTimeout), time.Duration(h.ReadTimeout)}
}

// limiter keeps limits on what is done next.
type limiter struct {
	limits
	abort func() // ends what is being done

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	late  *exchange.Error // what took too long

	answered bool
}

// next begins op, which may take d, and ends what was done before.
func (l *limiter) next(op string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked(op, d)
}

func (l *limiter) nextLocked(op string, d time.Duration) {
	l.stopLocked()
	if l.late != nil || d <= 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		l.mu.Lock()
		late := l.timer == timer // else it was stopped too late
		if late {
			l.late = &exchange.Error{Kind: exchange.TimedOut, Op: op, Sent: op != connecting, Err: fmt.Errorf("not within %v", d)}
		}
		l.mu.Unlock()
		if late {
			l.abort()
		}
	})
	l.timer = timer
}

const connecting = "connect"

func (l *limiter) stopLocked() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// sent begins the wait for the response, unless that is there already.
func (l *limiter) sent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.answered {
		l.nextLocked("read header", l.header)
	}
}

// pause ends what was done, and returns what took too long, nil if nothing did.
func (l *limiter) pause() *exchange.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = true
	l.stopLocked()
	return l.late
}

// guard puts the limit on reads around the body of res.
func (l *limiter) guard(res *http.Response) {
	if l.read > 0 && res.Body != http.NoBody {
		res.Body = &limitedBody{res.Body, l}
	}
}

type limitedBody struct {
	io.ReadCloser
	limiter *limiter
}

func (b *limitedBody) Read(p []byte) (int, error) {
	b.limiter.next("read body", b.limiter.read)
	n, err := b.ReadCloser.Read(p)
	if late := b.limiter.pause(); late != nil && err != nil && err != io.EOF {
		return n, late
	}
	return n, err
}
