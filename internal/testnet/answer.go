// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// End is what a Backend does with the connection after an answer.
type End int

const (
	// Keep waits for the next request, as HTTP/1.1 does.
	Keep End = iota
	// Close closes the connection.
	Close
	// Reset closes it with a TCP reset.
	Reset
	// Persist waits for the next request whatever the client said of the
	// connection.
	Persist
	// Hang says nothing more until the client closes or the backend stops.
	Hang
)

// Answer is what a Backend does with one request.
type Answer struct {
	Status int      // 200 if 0
	Header []string // "Name: value"; Content-Length is added if there is no framing
	Body   string
	// Echo makes the request's body the answer's.
	Echo bool

	// Raw, if not empty, is written instead of status, header and body: a
	// partial header, something that is not HTTP, two answers at once.
	Raw string

	// None answers nothing at all and goes on to Then.
	None bool

	// Delay passes before the answer, and Hold (if not nil) is waited for. Both
	// end early when the client closes.
	Delay time.Duration
	Hold  <-chan struct{}

	// Early answers before the request's body is read.
	Early bool
	// Continue answers 100 Continue before the body is read.
	Continue bool

	Then End
}

// Answers to start from.
var (
	// CloseUnanswered reads the request and closes the connection.
	CloseUnanswered = Answer{None: true, Then: Close}
	// ResetUnanswered reads the request and resets the connection.
	ResetUnanswered = Answer{None: true, Then: Reset}
	// Silent reads the request and never answers.
	Silent = Answer{None: true, Then: Hang}
	// PartialHeader breaks off in the middle of a header.
	PartialHeader = Answer{Raw: "HTTP/1.1 200 OK\r\nContent-Le", Then: Close}
)

// StatusAnswer is an answer with a status and a body that names it.
func StatusAnswer(status int) Answer {
	return Answer{Status: status, Body: fmt.Sprintf("status %d\n", status)}
}

// plain reports that the answer is a 200 of which nothing else was said.
func (a Answer) plain() bool {
	return a.Body == "" && a.Raw == "" && !a.None && (a.Status == 0 || a.Status == 200) && len(a.Header) == 0
}

// bytes is what goes on the wire.
func (a Answer) bytes(head bool) []byte {
	if a.None {
		return nil
	}
	if a.Raw != "" {
		return []byte(a.Raw)
	}
	status := a.Status
	if status == 0 {
		status = 200
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d Scripted\r\n", status)
	framed := status < 200 || status == 204 || status == 304
	for _, h := range a.Header {
		b.WriteString(h + "\r\n")
		name, _, _ := strings.Cut(strings.ToLower(h), ":")
		framed = framed || name == "content-length" || name == "transfer-encoding"
	}
	if !framed {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(a.Body))
	}
	if a.Then == Close {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	if !head {
		b.WriteString(a.Body)
	}
	return []byte(b.String())
}

// reset makes the close of c a TCP reset, where c is TCP.
func reset(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}
