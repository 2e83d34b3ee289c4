// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"fmt"
)

// Phase is when a handler runs in the life of a session. The phases are
// nginx's.
type Phase int

// The phases, in order. A server has exactly one content handler; log handlers
// run once, at the end, whatever ended the session.
const (
	PostAccept  Phase = iota // the client's address: proxy_protocol, realip
	Preaccess                // limits: limit_conn
	AccessPhase              // allow and deny
	SSL                      // TLS termination
	Preread                  // looking at what the client sends first: ssl_preread
	Content                  // proxy_pass, return, pass
	Log                      // access_log
)

var phaseNames = [...]string{"post_accept", "preaccess", "access", "ssl", "preread", "content", "log"}

func (p Phase) String() string { return phaseNames[p] }

// Handler is a step of a session: a Caddy module in the namespace
// stream.handlers.
type Handler interface {
	// Phase says when the handler runs; it is asked once.
	Phase() Phase
	// Handle does its work. An error ends the session: with the status of an
	// *End in it, with 500 otherwise.
	Handle(s *Session) error
}

// The statuses of a session, as nginx's $status.
const (
	StatusOK          = 200
	StatusBadRequest  = 400 // broken PROXY header, preread buffer full
	StatusForbidden   = 403
	StatusInternal    = 500
	StatusBadGateway  = 502 // no server could be connected
	StatusUnavailable = 503 // limit_conn
)

// End is an error that ends a session with a status.
type End struct {
	Status int
	Err    error
	// Client: it is the client's doing, and no error of ours or of a server's.
	Client bool
}

func (e *End) Error() string { return fmt.Sprintf("status %d: %v", e.Status, e.Err) }

func (e *End) Unwrap() error { return e.Err }

func endWith(status int, format string, args ...any) error {
	return &End{Status: status, Err: fmt.Errorf(format, args...)}
}

func blamesClient(err error) bool {
	var e *End
	return errors.As(err, &e) && e.Client
}

// statusOf is the status that err ends a session with.
func statusOf(err error) int {
	var e *End
	switch {
	case err == nil:
		return StatusOK
	case errors.As(err, &e):
		return e.Status
	}
	return StatusInternal
}
