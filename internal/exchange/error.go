// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// ErrClosed is what ends an exchange whose caller closed the response's body before
// its end.
var ErrClosed = errors.New("response body closed before its end")

// Kind says whose fault the end of an exchange is, in the terms that
// next_upstream decides by.
type Kind uint8

const (
	// Failed: the server refused, reset or closed the connection, or its TLS
	// handshake or certificate failed. nginx's "error".
	Failed Kind = iota
	// TimedOut: connecting, sending or waiting for the header took too long.
	TimedOut
	// InvalidHeader: the server answered, but not with HTTP.
	InvalidHeader
	// ClientGone: the request's context ended; nobody waits for an answer.
	ClientGone
	// ClientBody: reading the request's body failed. Err is that error itself.
	ClientBody
	// Local: this machine could not try: no descriptor, no free port, no
	// permission. Nobody's failure; the client gets 500.
	Local
	// Refused: the request cannot be sent safely (a line break in a header
	// value, an invalid method). Nobody's failure; the client gets Status.
	Refused
	// Parked: the connection is still being made and belongs to Attempt.Race;
	// nothing has been sent, and the attempt may be used for another exchange.
	Parked
)

var kindNames = [...]string{"error", "timeout", "invalid_header", "client gone", "client body", "local", "refused", "parked"}

func (k Kind) String() string { return kindNames[k] }

// Error is the one type of error that an [Exchanger] returns.
type Error struct {
	Kind Kind
	// Op is what was being done: "connect", "tls handshake", "send request",
	// "read header", "write request".
	Op string
	// Sent reports that some of the request may have reached the server.
	Sent bool
	// Stale reports that a cached connection broke before the first byte of
	// a response, and was not repaired.
	Stale bool
	// Status is the client's answer for Refused; 0 otherwise.
	Status int
	// Err is the cause, never nil.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Op, e.Kind, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Timeout reports that a time limit was what ended the exchange, as net.Error
// wants it: Caddy answers 504 then.
func (e *Error) Timeout() bool { return e.Kind == TimedOut }

// Temporary completes net.Error.
func (e *Error) Temporary() bool { return false }

// Foreign finds out what the error of a transport that is not ours means. What
// neither a limit on time nor bytes that are not HTTP explain is Failed.
func Foreign(op string, sent bool, err error) *Error {
	e := &Error{Kind: Failed, Op: op, Sent: sent, Err: err}
	var timeout net.Error
	switch {
	case strings.Contains(err.Error(), "malformed"):
		e.Kind, e.Op, e.Sent = InvalidHeader, "read header", true
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded),
		// Caddy's DialError hides what it wraps, but for the text.
		strings.HasSuffix(err.Error(), os.ErrDeadlineExceeded.Error()):
		e.Kind = TimedOut
	}
	return e
}
