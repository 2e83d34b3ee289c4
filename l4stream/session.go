// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/clienthello"
)

// Session is one client's connection, or for UDP the datagrams from one
// client's address, from accepting it to its end. It belongs to one goroutine;
// what others may ask is safe.
type Session struct {
	// Conn is the client's connection; TLS once it is terminated. For UDP it is
	// nil.
	Conn net.Conn

	raw     atomic.Pointer[net.Conn] // the connection as accepted
	direct  *direct                  // before there is a connection: see direct.go
	server  *Server
	udp     *udpSession // nil for TCP
	number  uint64
	start   time.Time
	ended   time.Time
	client  proxyproto.Endpoint // after realip
	peer    proxyproto.Endpoint // as connected
	local   proxyproto.Endpoint
	header  *proxyproto.Header // PROXY header, nil without
	hello   *clienthello.Info  // of ssl_preread, nil without
	tls     *tls.ConnectionState
	cert    *tls.Certificate
	preread []byte // read from Conn, not yet consumed
	vars    map[string]func() string
	repl    *caddy.Replacer
	limits  []func() // give back what limit_conn took
	limit   string   // $limit_conn_status
	status  int
	passes  int
	tries   []*try
	first   try

	received, sent atomic.Int64           // from and to the client
	bound          *peer.Peer             // whose end of service is the session\'s; nil for none
	walk           peer.Session           // over the group that proxy_pass chose
	stopDial       atomic.Pointer[func()] // while connecting
	moving         atomic.Pointer[mover]
	aborted        atomic.Bool
}

// try is one server that a session went to.
type try struct {
	lease     *peer.Lease
	addr      string
	connect   time.Duration // since the try began; 0: not reached
	firstByte atomic.Int64
	end       time.Duration
	started   time.Time
	sent      atomic.Int64
	received  atomic.Int64
}

// gotFirstByte notes that the server has sent something, the first time.
func (t *try) gotFirstByte() {
	if t.firstByte.Load() != 0 {
		return
	}
	now := time.Now()
	d := max(now.Sub(t.started), 1)
	t.firstByte.Store(int64(d))
	if t.lease != nil {
		t.lease.Observe(peer.FirstByte, d, now)
		peer.Record(&t.lease.Peer().Stats.Header, d, now)
	}
}

var connectionNumber atomic.Uint64

func newSession(server *Server, conn net.Conn) *Session {
	s := &Session{
		Conn: conn, server: server, number: connectionNumber.Add(1), start: time.Now(),
		client: proxyproto.EndpointOf(conn.RemoteAddr()), local: proxyproto.EndpointOf(conn.LocalAddr()),
	}
	s.raw.Store(&conn)
	s.peer = s.client
	return s
}

// Client is the client's address: the zero Addr for a unix socket.
func (s *Session) Client() netip.Addr { return s.client.Addr.Addr() }

// Protocol is TCP or UDP.
func (s *Session) Protocol() string {
	if s.udp != nil {
		return "UDP"
	}
	return "TCP"
}

// Replacer returns the placeholders of the session.
func (s *Session) Replacer() *caddy.Replacer {
	if s.repl == nil {
		s.repl = caddy.NewReplacer()
		s.repl.Map(s.placeholder)
	}
	return s.repl
}

// expand replaces the placeholders in text; unknown ones are empty.
func (s *Session) expand(text string) string { return s.Replacer().ReplaceAll(text, "") }

// setVar defines {stream.vars.<name>}. value is asked for each time.
func (s *Session) setVar(name string, value func() string) {
	if s.vars == nil {
		s.vars = map[string]func() string{}
	}
	s.vars[name] = value
}

// Abort ends the session soon. Any goroutine may call it.
func (s *Session) Abort() {
	s.aborted.Store(true)
	if s.udp != nil {
		s.udp.end(StatusOK, nil)
		return
	}
	if m := s.moving.Load(); m != nil {
		(*m).Abort()
		return
	}
	if stop := s.stopDial.Load(); stop != nil {
		(*stop)()
		return
	}
	if raw := s.raw.Load(); raw != nil {
		_ = (*raw).Close()
	}
}

// mover is what moves the session's bytes, and can be made to stop.
type mover interface{ Abort() }

// moveBy makes m the session's mover.
func (s *Session) moveBy(m mover) {
	s.moving.Store(&m)
	if s.aborted.Load() {
		m.Abort()
	}
}

// newTry begins a try at the server that lease holds, or records that there is
// none.
func (s *Session) newTry(lease *peer.Lease, addr string, now time.Time) *try {
	t := &s.first
	if len(s.tries) > 0 {
		t = new(try)
	}
	t.lease, t.addr, t.started = lease, addr, now
	s.tries = append(s.tries, t)
	return t
}

// unread puts bytes that were read for a look back in front of the rest.
func (s *Session) unread() net.Conn {
	if len(s.preread) == 0 {
		return s.Conn
	}
	c := &prereadConn{Conn: s.Conn, ahead: bytes.NewReader(s.preread)}
	s.preread = nil
	return c
}

// prereadConn is a connection whose first bytes have been read already.
type prereadConn struct {
	net.Conn
	ahead *bytes.Reader
}

func (c *prereadConn) Read(p []byte) (int, error) {
	if c.ahead.Len() > 0 {
		return c.ahead.Read(p)
	}
	return c.Conn.Read(p)
}

// CloseWrite ends the direction to the client, if the connection can.
func (c *prereadConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return net.ErrClosed
}

// smallPreread is what a client that says nothing costs while it is waited for.
const smallPreread = 512

// peek reads more of what the client sends first, for a look: at most limit
// bytes in all. It returns io.ErrShortBuffer when that many are there.
func (s *Session) peek(limit int) error {
	if len(s.preread) >= limit {
		return io.ErrShortBuffer
	}
	if len(s.preread) == cap(s.preread) {
		grown := make([]byte, len(s.preread), min(max(smallPreread, 2*len(s.preread)), limit))
		copy(grown, s.preread)
		s.preread = grown
	}
	n, err := s.Conn.Read(s.preread[len(s.preread):min(cap(s.preread), limit)])
	s.preread = s.preread[:len(s.preread)+n]
	if n > 0 {
		return nil
	}
	return err
}

func portOf(e proxyproto.Endpoint) string {
	if !e.Addr.IsValid() {
		return ""
	}
	return strconv.Itoa(int(e.Addr.Port()))
}
