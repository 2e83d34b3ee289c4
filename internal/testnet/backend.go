// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Backend is an HTTP/1.1 server that remembers every request to the byte and
// answers by script.
type Backend struct {
	*Server
	t        testing.TB
	scriptMu sync.Mutex // held while a script runs
	answer   func(Request) Answer
	requests []Request // this and what follows is guarded by Server.mu
	inFlight int
	most     int
}

// NewBackend starts a backend that gives every request the same answer; with
// an empty body it is the backend's port.
func NewBackend(t testing.TB, a Answer) *Backend {
	t.Helper()
	return NewBackendFunc(t, func(Request) Answer { return a })
}

// NewBackendFunc starts a backend whose answers are chosen by f, which is called
// for one request at a time, when its header is there and its body is not.
func NewBackendFunc(t testing.TB, f func(Request) Answer) *Backend {
	t.Helper()
	return NewBackendOn(t, nil, f)
}

// NewBackendOn is NewBackendFunc on listeners that listen opens: TLS, a Unix
// socket, an address in a Host. It is called again by Restart. With a nil
// listen it is 127.0.0.1 and a port that stays the backend's own, refused
// while it is stopped.
func NewBackendOn(t testing.TB, listen func() (net.Listener, error), f func(Request) Answer) *Backend {
	t.Helper()
	b := &Backend{t: t, answer: f}
	b.Server = newServer(t, listen, b.serve)
	return b
}

// Script changes the answers from the next request on.
func (b *Backend) Script(f func(Request) Answer) {
	b.scriptMu.Lock()
	defer b.scriptMu.Unlock()
	b.answer = f
}

// SetAnswer changes the answer from the next request on.
func (b *Backend) SetAnswer(a Answer) { b.Script(func(Request) Answer { return a }) }

// Requests are all requests so far, in the order in which they were complete.
func (b *Backend) Requests() []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Request(nil), b.requests...)
}

// Forget empties the list of requests.
func (b *Backend) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests, b.most = nil, b.inFlight
}

// WaitRequests waits at most 10 s for n requests and returns all there are.
func (b *Backend) WaitRequests(n int) []Request {
	b.t.Helper()
	Eventually(b.t, 10*time.Second, fmt.Sprintf("%d requests at %s", n, b.Addr()), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.requests) >= n
	})
	return b.Requests()
}

// InFlight is the number of requests being read or answered now, and the most
// there have been at once.
func (b *Backend) InFlight() (now, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight, b.most
}

func (b *Backend) count(delta int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight += delta
	b.most = max(b.most, b.inFlight)
}

// serve is one connection.
func (b *Backend) serve(c net.Conn, number int) {
	r := bufio.NewReader(c)
	for {
		line, header, err := readHead(r)
		if err != nil {
			if !b.Stopped() && line != "" {
				b.t.Errorf("backend %s: %v", b.Addr(), err)
			}
			return
		}
		b.count(+1)
		again := b.exchange(c, r, Request{
			Line: line, Header: header, Conn: number, ClientPort: clientPort(c), At: time.Now(),
		})
		if !again {
			return
		}
	}
}

// exchange answers one request and reports whether another may follow. The
// request is off the count before its last byte leaves.
func (b *Backend) exchange(c net.Conn, r *bufio.Reader, req Request) (again bool) {
	b.scriptMu.Lock()
	a := b.answer(req)
	b.scriptMu.Unlock()
	if a.Continue {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if !a.Early {
		b.readBody(r, &req)
	}
	if a.Echo {
		a.Body = string(req.Body)
	} else if a.plain() {
		a.Body = fmt.Sprintf("%d\n", b.Port())
	}
	b.mu.Lock()
	b.requests = append(b.requests, req)
	b.mu.Unlock()

	if !b.pause(c, r, a) {
		b.count(-1)
		return false
	}
	b.write(c, a, req.Method() == "HEAD")
	if a.Early && (a.Then == Keep || a.Then == Persist) {
		b.readBody(r, &req)
	}
	switch a.Then {
	case Keep:
		return req.BodyError == nil && !closes(req)
	case Persist:
		return req.BodyError == nil
	case Reset:
		reset(c)
	case Hang:
		_, _ = io.Copy(io.Discard, r)
	}
	return false
}

func (b *Backend) readBody(r *bufio.Reader, req *Request) {
	sink := newBodySink()
	from, chunked, err := body(r, req.Header, false)
	if err == nil {
		_, err = io.Copy(sink, from)
	}
	if err == nil && chunked {
		req.Trailer, err = readHeader(r)
	}
	req.Body, req.BodySHA256, req.BodyError = sink.kept, sink.sum(), err
}

// pause waits as the answer says. It reports false if the client closed first
// or the backend was stopped.
func (b *Backend) pause(c net.Conn, r *bufio.Reader, a Answer) bool {
	if a.Delay == 0 && a.Hold == nil {
		return true
	}
	gone := make(chan struct{})
	peeked := make(chan struct{})
	go func() {
		defer close(peeked)
		if _, err := r.Peek(1); err != nil && !isTimeout(err) {
			close(gone)
		}
	}()
	ok := true
	select {
	case <-time.After(a.Delay):
	case <-gone:
		ok = false
	}
	if ok && a.Hold != nil {
		select {
		case <-a.Hold:
		case <-gone:
			ok = false
		}
	}
	_ = c.SetReadDeadline(time.Unix(1, 0))
	<-peeked
	_ = c.SetReadDeadline(time.Time{})
	return ok
}

// write sends the answer; what is in flight goes down before the last byte.
func (b *Backend) write(c net.Conn, a Answer, head bool) {
	wire := a.bytes(head)
	if len(wire) > 1 {
		_, _ = c.Write(wire[:len(wire)-1])
		wire = wire[len(wire)-1:]
	}
	b.count(-1)
	_, _ = c.Write(wire)
}

// closes reports whether the client said that this is its last request.
func closes(r Request) bool {
	token := strings.ToLower(r.Get("Connection"))
	if strings.HasSuffix(r.Line, "HTTP/1.0") {
		return token != "keep-alive"
	}
	return token == "close"
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

func clientPort(c net.Conn) int {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}
