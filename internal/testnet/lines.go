// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// Lines is a TCP backend that answers each line in upper case behind its port:
// "hello\n" gives "9101 HELLO\n". When the client ends its side it answers
// what was pending and closes.
type Lines struct {
	*Server
	received []string // guarded by Server.mu
}

// NewLines starts a line backend on 127.0.0.1; banner, if not empty, is sent
// first, as by servers that speak before they listen.
func NewLines(t testing.TB, banner string) *Lines {
	t.Helper()
	return NewLinesOn(t, nil, banner)
}

// NewLinesOn is NewLines on listeners that listen opens, as for NewBackendOn.
func NewLinesOn(t testing.TB, listen func() (net.Listener, error), banner string) *Lines {
	t.Helper()
	l := &Lines{}
	l.Server = newServer(t, listen, func(c net.Conn, _ int) {
		if banner != "" {
			_, _ = io.WriteString(c, banner)
		}
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				l.mu.Lock()
				l.received = append(l.received, line)
				l.mu.Unlock()
				if _, err := fmt.Fprintf(c, "%d %s", l.Port(), strings.ToUpper(line)); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	return l
}

// Received are all lines so far, ends included.
func (l *Lines) Received() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.received...)
}

// NewMute starts a TCP backend that accepts, reads and never says anything.
func NewMute(t testing.TB) *Server {
	t.Helper()
	return newServer(t, nil, func(c net.Conn, _ int) { _, _ = io.Copy(io.Discard, c) })
}

// NewTCP starts a TCP backend with a handler of the test's own. The connection
// is closed when it returns; number counts connections from 1.
func NewTCP(t testing.TB, handle func(c net.Conn, number int)) *Server {
	t.Helper()
	return newServer(t, nil, handle)
}

// Broken reports whether err is what a client sees when the other side closes
// or resets its connection.
func Broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err)
}
