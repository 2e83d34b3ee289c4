// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
)

// Server is what all backends over connections share: a listener that can be
// stopped and opened again, and the connections that it has accepted.
type Server struct {
	t      testing.TB
	listen func() (net.Listener, error)
	handle func(c net.Conn, number int)
	wg     sync.WaitGroup

	mu       sync.Mutex // guards what follows, and the state of the backend around it
	ln       net.Listener
	addr     net.Addr
	conns    map[net.Conn]int // their numbers
	accepted int
}

// newServer listens, and calls handle in a goroutine for each connection,
// numbered from 1. The connection is closed when handle returns.
func newServer(t testing.TB, listen func() (net.Listener, error), handle func(net.Conn, int)) *Server {
	t.Helper()
	if listen == nil {
		addr := Reserve(t).Addr()
		listen = func() (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	s := &Server{t: t, listen: listen, handle: handle, conns: map[net.Conn]int{}}
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// Restart listens again after Stop, at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	var ln net.Listener
	err := whileInUse(func() (err error) {
		ln, err = s.listen()
		return err
	})
	if err != nil {
		s.t.Fatalf("listening: %v", err)
	}
	s.mu.Lock()
	s.ln, s.addr = ln, ln.Addr()
	s.mu.Unlock()
	s.wg.Go(func() { s.accept(ln) })
}

func (s *Server) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.ln != ln {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.accepted++
		number := s.accepted
		s.conns[c] = number
		s.mu.Unlock()
		s.wg.Go(func() {
			s.handle(c, number)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// Stop closes the listener and all connections: from here on connecting is
// refused. It returns when nothing runs any more.
func (s *Server) Stop() {
	s.mu.Lock()
	if s.ln != nil {
		s.ln.Close()
		s.ln = nil
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// CloseConns closes all connections and goes on listening.
func (s *Server) CloseConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// Stopped reports whether the server is stopped.
func (s *Server) Stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ln == nil
}

// Addr is the address it listens or listened on, as dialled.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr.String()
}

// Port is the TCP port of Addr, 0 for other networks.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.addr.(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// Conns is the number of connections open now and of all accepted so far.
func (s *Server) Conns() (open, accepted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns), s.accepted
}

// Open are the numbers of the connections open now, in ascending order.
func (s *Server) Open() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Values(s.conns))
}
