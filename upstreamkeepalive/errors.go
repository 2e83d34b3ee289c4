// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// errNoisy: the server has closed the connection, or said something that nobody
// asked for. Nothing has been sent.
var errNoisy = errors.New("the connection cannot be used any more")

// connectKind says whose fault a failure to connect is.
func connectKind(ctx context.Context, err error) exchange.Kind {
	switch {
	case isLocal(err):
		return exchange.Local
	case errors.Is(ctx.Err(), context.DeadlineExceeded), isTimeout(err):
		return exchange.TimedOut
	}
	return exchange.Failed
}

// isLocal reports that this machine could not try. connect(2) says
// EADDRNOTAVAIL when no port is free; EACCES from it is a firewall or a unix
// socket's permissions and belongs to the server.
func isLocal(err error) bool {
	for _, e := range [...]error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS,
		syscall.EADDRNOTAVAIL, syscall.EADDRINUSE,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	var se *os.SyscallError
	return errors.As(err, &se) && (se.Syscall == "socket" || se.Syscall == "bind" || se.Syscall == "setsockopt")
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// answerKind says what a failure on an open connection is.
func answerKind(err error) exchange.Kind {
	var m malformed
	switch {
	case errors.As(err, &m):
		return exchange.InvalidHeader
	case isTimeout(err):
		return exchange.TimedOut
	}
	return exchange.Failed
}
