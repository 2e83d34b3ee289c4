// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/udpbatch"
)

// udpSocket is a listening UDP socket with the sessions that came in on it. One
// goroutine reads it; it never waits for a session.
type udpSocket struct {
	owner  *socket
	reader udpReader
	batch  *udpbatch.Socket
	local  proxyproto.Endpoint

	mu       sync.Mutex // guards sessions
	sessions map[udpKey]*udpSession
	open     atomic.Int64 // sessions, those included that get no more datagrams

	queue   []queued      // what the batch that is being read has for the servers
	touched []*udpSession // those that it is of
	full    time.Time     // when the limit of sessions was last logged
}

// queued is a datagram for a server.
type queued struct {
	data []byte
	next int // of the same session in the queue, 0 if there is none
}

// udpKey tells sessions apart: by the client's address, and on a wildcard
// socket by the address that the client sent to.
type udpKey struct {
	client netip.AddrPort
	local  netip.Addr
}

// udpBuffers is the size of the kernel's buffers that is asked for: bursts come
// in while sessions are set up.
const udpBuffers = 4 << 20

func listenUDP(owner *socket, a address) (*udpSocket, error) {
	pc, err := (&net.ListenConfig{}).ListenPacket(context.Background(), a.Network, a.JoinHostPort(0))
	if err != nil {
		return nil, err
	}
	conn := pc.(*net.UDPConn)
	_ = conn.SetReadBuffer(udpBuffers)
	_ = conn.SetWriteBuffer(udpBuffers)
	batch, err := udpbatch.New(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	u := &udpSocket{
		owner: owner, batch: batch, local: proxyproto.EndpointOf(conn.LocalAddr()),
		sessions: map[udpKey]*udpSession{},
	}
	if u.reader, err = u.read(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return u, nil
}

// udpReader reads a socket and calls received and failed on one goroutine.
type udpReader interface {
	// use takes notice of the servers that the datagrams go to from now on.
	use(v *servers)
	close() error
}

// close ends reading. Sessions end with it: they cannot answer any more.
func (u *udpSocket) close() error {
	err := u.reader.close()
	u.mu.Lock()
	list := make([]*udpSession, 0, len(u.sessions))
	for _, s := range u.sessions {
		list = append(list, s)
	}
	u.mu.Unlock()
	for _, s := range list {
		s.end(StatusOK, nil)
	}
	return err
}

// received gives datagrams, which have come now, to their sessions.
func (u *udpSocket) received(packets []udpbatch.Packet, now time.Time) {
	servers := u.owner.current.Load()
	for i := range packets {
		if u.packet(servers.list[0], &packets[i], now) {
			now = time.Now() // the phases of a session take time
		}
	}
	for i, s := range u.touched {
		s.flush()
		u.touched[i] = nil
	}
	u.touched = u.touched[:0]
	clear(u.queue)
	u.queue = u.queue[:0]
}

// enqueue keeps a datagram for the session's server until the batch is read.
func (u *udpSocket) enqueue(s *udpSession, data []byte) {
	n := len(u.queue)
	u.queue = append(u.queue, queued{data: data})
	if s.touched {
		u.queue[s.last].next = n
	} else {
		s.touched, s.first = true, n
		u.touched = append(u.touched, s)
	}
	s.last = n
}

func (u *udpSocket) failed(err error) {
	u.owner.logger.Load().Debug("reading datagrams", zap.String("address", u.owner.key), zap.Error(err))
}

// packet gives a datagram to its session, a new one if there is none.
func (u *udpSocket) packet(server *Server, p *udpbatch.Packet, now time.Time) (begun bool) {
	key := udpKey{p.From, p.Local}
	u.mu.Lock()
	s := u.sessions[key]
	u.mu.Unlock()
	if s != nil {
		s.fromClient(s.strip(p.Data), now)
		return false
	}
	if most := server.MaxUDPSessions; most > 0 && u.open.Load() >= int64(most) {
		if now.Sub(u.full) > time.Second {
			u.full = now
			server.logger.Warn("too many UDP sessions: datagram dropped", zap.String("server", server.name), zap.Int("max_udp_sessions", most))
		}
		return false
	}
	u.begin(server, key, p)
	return true
}

// begin makes a session of a client's first datagram and runs its phases.
func (u *udpSocket) begin(server *Server, key udpKey, p *udpbatch.Packet) {
	s := &Session{
		server: server, number: connectionNumber.Add(1), start: time.Now(),
		client: endpoint(p.From), local: u.local,
	}
	if p.Local.IsValid() {
		s.local = endpoint(netip.AddrPortFrom(p.Local, u.local.Addr.Port()))
	}
	s.peer = s.client
	s.udp = &udpSession{socket: u, key: key, session: s, client: p.From, source: u.batch.Source(p.Local)}
	s.preread = p.Data
	u.open.Add(1)
	defer func() {
		panicked := recover()
		if panicked == nil && s.udp.isRunning() {
			return // until its end; see udpSession.finish
		}
		s.finish(panicked)
		u.open.Add(-1)
	}()
	s.server.sessions.add(s)
	err := s.phase(PostAccept)
	if err == nil {
		err = s.runPhases()
	}
	switch {
	case err != nil:
		s.end(err)
	case !s.udp.isRunning():
		s.status = StatusOK
	}
}

// reply sends one datagram to the client.
func (s *udpSession) reply(data []byte) error {
	w := s.socket.batch.NewSender()
	w.Add(data, s.client, s.source)
	err := w.TryFlush()
	w.Release()
	if err != nil {
		return endWith(StatusOK, "replying: %w", err)
	}
	s.session.sent.Add(int64(len(data)))
	s.session.received.Add(int64(len(s.session.preread)))
	return nil
}

// strip takes off the PROXY header of a datagram, if the server reads them:
// some senders put one in front of every datagram.
func (s *udpSession) strip(data []byte) []byte {
	if s.session.header == nil {
		return data
	}
	if h, n, err := proxyproto.Parse(data); err == nil && h.Version == 2 {
		return data[n:]
	}
	return data
}

// readDatagramHeader is ProxyProtocol's work on the first datagram.
func (p *ProxyProtocol) readDatagramHeader(s *Session) error {
	header, n, err := proxyproto.Parse(s.preread)
	if err == nil && header.Version != 2 {
		err = fmt.Errorf("version %d on UDP: expected 2", header.Version)
	}
	switch {
	case err == nil:
		return p.accept(s, header, n)
	case p.Require:
		return endWith(StatusBadRequest, "PROXY header required: %w", err)
	}
	return nil
}
