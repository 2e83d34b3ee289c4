// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
)

func init() { caddy.RegisterModule(Connections{}) }

// Connections is a listener wrapper that knows of a connection what nginx has
// variables for: its number, its bytes, its PROXY header.
type Connections struct {
	// Connections begin with a PROXY header, version 1 or 2; those that do not are
	// closed. It says who the client is only where real_ip believes it.
	ProxyProtocol bool `json:"proxy_protocol,omitempty"`

	// Count bytes. With TLS the wrapper that does so stands behind `tls`.
	Count bool `json:"count,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Connections) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.nginx", New: func() caddy.Module { return new(Connections) }}
}

// WrapListener implements caddy.ListenerWrapper.
func (l *Connections) WrapListener(ln net.Listener) net.Listener {
	return &listener{Listener: ln, options: *l}
}

type listener struct {
	net.Listener
	options Connections
}

var connections atomic.Uint64 // of this process

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &clientConn{Conn: inner, count: l.options.Count}
	if known := connectionAt(inner.LocalAddr()); known != nil {
		c.about = known
	} else {
		c.about = &connection{number: connections.Add(1), start: time.Now()}
	}
	c.local = localAddrOf{inner.LocalAddr(), c.about}
	c.header = l.options.ProxyProtocol
	if s, ok := inner.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return tlsClientConn{c, s}, nil
	}
	return c, nil
}

// connection is what is known of a client's connection.
type connection struct {
	number         uint64
	start          time.Time
	requests       atomic.Uint64
	sent, received atomic.Int64
	before         atomic.Int64 // received, for earlier requests
	header         atomic.Pointer[proxyproto.Header]
}

// localAddrOf is the local address of a connection. Requests have it in their
// context, and that is how they find the connection: Caddy and net/http wrap
// connections in types of their own.
type localAddrOf struct {
	net.Addr
	about *connection
}

// connectionAt returns the connection of a local address, nil if it is not one
// of ours.
func connectionAt(a net.Addr) *connection {
	if l, ok := a.(localAddrOf); ok {
		return l.about
	}
	return nil
}

func connectionOf(r *http.Request) *connection {
	a, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return connectionAt(a)
}

// clientConn is a connection of a client.
type clientConn struct {
	net.Conn
	about *connection
	local net.Addr
	count bool

	mu     sync.Mutex // guards the two below
	header bool       // a PROXY header comes first
	rest   []byte     // read with the header
}

// LocalAddr implements net.Conn.
func (c *clientConn) LocalAddr() net.Addr { return c.local }

// Read implements net.Conn.
func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if c.count {
		c.about.received.Add(int64(n))
	}
	return n, err
}

func (c *clientConn) read(p []byte) (int, error) {
	c.mu.Lock()
	if c.header {
		if err := c.readHeaderLocked(); err != nil {
			c.mu.Unlock()
			return 0, err
		}
		c.header = false
	}
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		c.mu.Unlock()
		return n, nil
	}
	c.mu.Unlock()
	return c.Conn.Read(p)
}

// readHeaderLocked reads the PROXY header. The server that reads from c has set
// it a deadline. A client without a header gets no answer: io.EOF.
func (c *clientConn) readHeaderLocked() error {
	buf := make([]byte, 0, 512)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, len(buf))...)[:len(buf)]
		}
		n, err := c.Conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n > 0 {
			h, length, broken := proxyproto.Parse(buf)
			switch {
			case broken == nil:
				c.rest = buf[length:]
				c.about.header.Store(&h)
				return nil
			case !errors.Is(broken, proxyproto.ErrIncomplete):
				return io.EOF
			}
		}
		if err != nil {
			return err
		}
	}
}

// Write implements net.Conn.
func (c *clientConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.count {
		c.about.sent.Add(int64(n))
	}
	return n, err
}

// CloseWrite ends the side of the server, for clients that are still sending.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// tlsClientConn is one behind TLS.
type tlsClientConn struct {
	*clientConn
	state interface{ ConnectionState() tls.ConnectionState }
}

// ConnectionState tells Caddy of the TLS connection.
func (c tlsClientConn) ConnectionState() tls.ConnectionState { return c.state.ConnectionState() }

// Interface guard
var _ caddy.ListenerWrapper = (*Connections)(nil)
