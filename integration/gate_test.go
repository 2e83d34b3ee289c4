// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// gate stands in front of a TLS server. While it is shut connections are
// accepted, but their handshakes wait, which to a proxy is a server that takes
// long to connect.
type gate struct {
	mu   sync.Mutex // guards way
	way  chan struct{}
	shut bool
}

func newGate() *gate { return &gate{way: make(chan struct{}), shut: true} }

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		close(g.way)
		g.shut = false
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.way, g.shut = make(chan struct{}), true
	}
}

// pass waits until the gate is open or the connection closed.
func (g *gate) pass(closed <-chan struct{}) {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	select {
	case <-way:
	case <-closed:
	}
}

// listen returns what testnet's servers listen with: TLS behind the gate.
func (g *gate) listen(config *tls.Config) func() (net.Listener, error) {
	return func() (net.Listener, error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return tls.NewListener(&gatedListener{ln, g}, config), nil
	}
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: c, gate: l.gate, closed: make(chan struct{})}, nil
}

type gatedConn struct {
	net.Conn
	gate   *gate
	passed sync.Once
	close  sync.Once
	closed chan struct{}
}

func (c *gatedConn) Read(p []byte) (int, error) {
	c.passed.Do(func() { c.gate.pass(c.closed) })
	return c.Conn.Read(p)
}

func (c *gatedConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// gated are n TLS backends with the names a, b, c..., whose gates are shut.
func gated(t *testing.T, n int) ([]*testnet.Backend, []*gate) {
	t.Helper()
	cert, _, _ := newAuthority(t).issue("127.0.0.1")
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	backends, gates := make([]*testnet.Backend, n), make([]*gate, n)
	for i := range backends {
		gates[i] = newGate()
		a := named(fmt.Sprintf("%c", 'a'+i))
		backends[i] = testnet.NewBackendOn(t, gates[i].listen(config), func(testnet.Request) testnet.Answer { return a })
	}
	return backends, gates
}

// waitConnecting waits until a connection to each of these is being made.
func waitConnecting(t *testing.T, backends ...*testnet.Backend) {
	t.Helper()
	for _, b := range backends {
		testnet.Eventually(t, 30*time.Second, "a connection to "+b.Addr(), func() bool {
			open, _ := b.Conns()
			return open > 0
		})
	}
}

// addrs joins the addresses as the access log does.
func addrs(backends ...*testnet.Backend) string {
	var out []string
	for _, b := range backends {
		out = append(out, b.Addr())
	}
	return strings.Join(out, ", ")
}

// accepted is the number of connections that a backend has ever accepted.
func accepted(b *testnet.Backend) int {
	_, n := b.Conns()
	return n
}
