// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Exchanger is a transport that reports what happened in an [Attempt].
type Exchanger interface {
	http.RoundTripper

	// Exchange sends req to the server named by the request's
	// reverseproxy.DialInfo. The error is always an *Error. With a nil error,
	// a.Ended is called exactly once, when the exchange needs the server no
	// more: the body was read to its end or broke, or was closed, or an
	// upgraded connection was closed. A response without a body ends when its
	// Body is read or closed, not before: the caller can look at it first. After
	// Abort the end is told even if nobody touches the body any more. With an
	// error Ended is never called.
	//
	// Exchange closes req.Body, as a RoundTripper does, possibly after it has
	// returned: while an early response is read, the body is still being sent.
	// For a Rewinder nothing reads or closes it any more after Exchange has
	// returned an error, or after the response's body has been closed.
	Exchange(req *http.Request, a *Attempt) (*http.Response, error)
}

// Rewinder is a request body that can be sent again from its start, also after
// it has been closed. Its Read must not wait for the client. Without it a body
// of which anything was read is never sent a second time.
type Rewinder interface {
	io.ReadCloser
	Rewind() error
}

// Attempt is one try at one server: what the caller asks of the transport and
// what the transport found. It may be embedded in a larger object; it must not
// be copied after first use and may be reused after Reset.
type Attempt struct {
	// Ender, if not nil, is told when the exchange has ended.
	Ender Ender

	// StaleFails asks for nginx's own rule on a cached connection that breaks
	// before the first byte of the response: the error is returned (with
	// Error.Stale set) and not repaired on a fresh connection.
	StaleFails bool

	// NoReuse asks for the connection to be closed when the exchange ends, as
	// nginx does after a try that failed. The caller may set it between the
	// return of Exchange and the first use of the response's body.
	NoReuse bool

	// Reused reports that the request went over a cached connection.
	Reused bool

	// ServerName is the name that the server's certificate must be for, where
	// the transport's configuration does not say. Empty: the host of the address.
	ServerName string

	// Race, if not nil, may end the wait for a connection, for another server's.
	Race Race

	// Dialed, if not nil, is the connection to use: it was parked, and is there
	// now. The exchange takes it and sets Dialed to nil.
	Dialed Pending

	// Start is when the try began, just before connecting. The transport sets
	// it if it is zero. All durations below count from it.
	Start time.Time

	connect  atomic.Int64
	header   atomic.Int64
	response atomic.Int64
	sent     atomic.Int64
	received atomic.Int64
	head     atomic.Int64 // of received, that in front of the body

	mu      sync.Mutex // guards the two below
	target  Aborter
	aborted bool

	body atomic.Bool // some of it has been read
}

// Ender is told of the end of an exchange. err is nil after a complete
// response, and what broke the body otherwise.
type Ender interface {
	Ended(a *Attempt, err error)
}

// Aborter is what an attempt holds on to while Abort may have to break it: in
// practice a connection. Abort is called at most once for each Attach, from
// any goroutine, and must not block.
type Aborter interface {
	Abort()
}

// Reset makes a ready for a further try. No exchange may be using it.
func (a *Attempt) Reset() {
	a.Ender, a.StaleFails, a.NoReuse, a.ServerName = nil, false, false, ""
	a.Race, a.Dialed = nil, nil
	a.Start, a.Reused = time.Time{}, false
	for _, v := range []*atomic.Int64{&a.connect, &a.header, &a.response, &a.sent, &a.received, &a.head} {
		v.Store(0)
	}
	a.body.Store(false)
	a.mu.Lock()
	a.target, a.aborted = nil, false
	a.mu.Unlock()
}

// Attach makes t the target of Abort. It reports false, and keeps nothing, if
// the attempt has been aborted already.
func (a *Attempt) Attach(t Aborter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.aborted {
		return false
	}
	a.target = t
	return true
}

// Detach ends what Attach began: once it has returned, Abort does not touch
// the target any more. It reports whether the attempt has been aborted.
func (a *Attempt) Detach() (aborted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.target = nil
	return a.aborted
}

// Abort breaks the exchange: the client has gone, or another try has won.
func (a *Attempt) Abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.aborted {
		return
	}
	a.aborted = true
	if a.target != nil {
		a.target.Abort()
	}
}

// Aborted reports whether Abort has been called.
func (a *Attempt) Aborted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.aborted
}

// mark stores the time since Start, at least 1 ns so that 0 means "not reached".
func (a *Attempt) mark(v *atomic.Int64, now time.Time) {
	v.Store(max(1, int64(now.Sub(a.Start))))
}

// Connected records when the connection was usable, TLS handshake included.
func (a *Attempt) Connected(now time.Time) { a.mark(&a.connect, now) }

// HeaderRead records when the response header was complete.
func (a *Attempt) HeaderRead(now time.Time) { a.mark(&a.header, now) }

// Finished records when the exchange ended, however it did.
func (a *Attempt) Finished(now time.Time) { a.mark(&a.response, now) }

// AddSent and AddReceived count bytes on the wire, header included, before TLS.
func (a *Attempt) AddSent(n int64)     { a.sent.Add(n) }
func (a *Attempt) AddReceived(n int64) { a.received.Add(n) }

// HeadReceived says that n bytes of those received are in front of the body.
func (a *Attempt) HeadReceived(n int64) { a.head.Store(n) }

// BodyRead says that somebody reads the body.
func (a *Attempt) BodyRead() { a.body.Store(true) }

// ConnectTime, HeaderTime and ResponseTime are the times since Start at which
// the connection was there, the response header complete and the exchange
// over; 0 means "not reached". They may be called at any time.
func (a *Attempt) ConnectTime() time.Duration  { return time.Duration(a.connect.Load()) }
func (a *Attempt) HeaderTime() time.Duration   { return time.Duration(a.header.Load()) }
func (a *Attempt) ResponseTime() time.Duration { return time.Duration(a.response.Load()) }

// Sent and Received are the bytes counted so far.
func (a *Attempt) Sent() int64     { return a.sent.Load() }
func (a *Attempt) Received() int64 { return a.received.Load() }

// Body is the bytes of the response's body on the wire, those of its framing
// included: nginx's $upstream_response_length. It is 0 for a response that was
// given up for that of another server.
func (a *Attempt) Body() int64 {
	if !a.body.Load() {
		return 0
	}
	return a.received.Load() - a.head.Load()
}
