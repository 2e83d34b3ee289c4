// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/evloop"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/splice"
)

// direct is a session without a connection of package net, whose phases run on
// the event loop that accepted it.
type direct struct {
	session  Session
	acceptor *acceptor
	fd       int // the client's socket; -1: no longer the session's
	away     away
}

// away is a session that an event loop moves.
type away struct {
	relay   splice.Relay
	pass    *ProxyPass
	session *Session
	group   *peer.Group // nil: the server was connected before
	try     *try
	preread int
}

// serveDirect runs the phases of a session on the loop.
func (a *acceptor) serveDirect(server *Server, servers *servers, fd int, from unix.Sockaddr) {
	d := &direct{acceptor: a, fd: fd}
	s := &d.session
	s.direct, s.server, s.number, s.start = d, server, connectionNumber.Add(1), a.loop.Now()
	s.client, s.local = endpointOf(from), a.local
	if a.wild {
		if local, err := unix.Getsockname(fd); err == nil {
			s.local = endpointOf(local)
		}
	}
	s.peer = s.client
	s.run(servers)
}

func endpointOf(sa unix.Sockaddr) proxyproto.Endpoint {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return endpoint(netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)))
	case *unix.SockaddrInet6:
		return endpoint(netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)))
	}
	return proxyproto.Endpoint{}
}

// close closes the client's socket while it is the session's.
func (d *direct) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
		d.fd = -1
	}
}

// proxy begins to connect a server of the group, and goes on when it is.
func (d *direct) proxy(p *ProxyPass, group *peer.Group) error {
	s := &d.session
	if group.QueueTimeout() > 0 {
		return s.waitElsewhere(func() error { return p.Handle(s) })
	}
	s.walk.Begin(group, p.options(s, group))
	t, err := p.next(s, group)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(t.lease.Peer().Server().Address)
	if err != nil { // a name, or a unix socket
		return s.waitElsewhere(func() error { return p.goOn(s, group, t) })
	}
	up, sa, err := p.beginConnect(to)
	if err != nil {
		return s.waitElsewhere(func() error { return p.goOnAfter(s, group, t, err) })
	}
	p.tuneSocket(d.fd, false)
	loop, err := evloop.Acquire()
	if err != nil {
		_ = unix.Close(up)
		return err
	}
	d.away.pass, d.away.session, d.away.group, d.away.try = p, s, group, t
	d.away.relay.Init(loop, d.fd, up, true, p.config(s, t), &d.away)
	d.away.relay.Connecting(sa, time.Duration(p.ConnectTimeout))
	s.moveBy(&d.away.relay)
	d.away.relay.Start(loop == d.acceptor.loop)
	return errAway
}

// beginConnect makes a socket that is being connected.
func (p *ProxyPass) beginConnect(to netip.AddrPort) (fd int, sa unix.Sockaddr, err error) {
	family := unix.AF_INET6
	if ip := to.Addr().Unmap(); ip.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	} else if zone := ip.Zone(); zone != "" {
		return -1, nil, localError{fmt.Errorf("address %s has a zone", to)} // package net knows them
	} else {
		sa = &unix.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("socket", err)
	}
	p.tuneSocket(fd, true)
	switch err = unix.Connect(fd, sa); err {
	case nil, unix.EINPROGRESS, unix.EINTR:
		return fd, sa, nil
	}
	_ = unix.Close(fd)
	return -1, nil, os.NewSyscallError("connect", err)
}

// tuneSocket is tune for a socket; one that was accepted has no delay already.
func (p *ProxyPass) tuneSocket(fd int, fresh bool) {
	switch {
	case p.NoDelay == "off" && !fresh:
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 0)
	case p.NoDelay != "off" && fresh:
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if p.SocketKeepalive {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	}
}

// waitElsewhere gives the session a connection and a goroutine, on which it goes
// on with f.
func (s *Session) waitElsewhere(f func() error) error {
	go s.do(func() error {
		conn, err := connOf(s.direct.fd)
		if s.direct.fd = -1; err != nil {
			return err
		}
		s.direct, s.Conn = nil, conn
		s.raw.Store(&conn)
		return f()
	})
	runtime.Gosched() // or it might have to wait until the loop does
	return errAway
}

// connOf makes a connection of an accepted socket.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(false) // which FileConn has turned on
	}
	return conn, nil
}

// goOn connects the server of t, or one after it, and moves the session.
func (p *ProxyPass) goOn(s *Session, group *peer.Group, t *try) error {
	up, t, err := p.connectFrom(s, group, t)
	if err != nil {
		return err
	}
	return p.pump(s, up, t)
}

// goOnAfter is goOn when the server of t could not be connected. What is this
// machine's fault is left to package net, which tries again sometimes.
func (p *ProxyPass) goOnAfter(s *Session, group *peer.Group, t *try, err error) error {
	if !localFailure(err) && err != splice.ErrToItself {
		address := t.lease.Peer().Server().Address
		err = fmt.Errorf("dial tcp %s: %w", address, err)
		if t, err = p.nextAfter(s, group, t, err); err != nil {
			return err
		}
	}
	return p.goOn(s, group, t)
}

// Connected implements splice.Owner.
func (a *away) Connected(now time.Time) {
	a.session.direct.fd = -1
	a.try.connect = max(now.Sub(a.try.started), 1)
	connected(a.session, a.try, now)
	a.pass.bind(a.session, a.try)
}

// NotConnected implements splice.Owner.
func (a *away) NotConnected(err error) {
	s := a.session
	s.moving.Store(nil)
	_ = s.waitElsewhere(func() error { return a.pass.goOnAfter(s, a.group, a.try, err) })
}

// Ended implements splice.Owner.
func (a *away) Ended(reason splice.Reason) {
	s := a.session
	if s.direct != nil {
		s.direct.fd = -1
	}
	a.pass.moved(s, a.try, reason, a.relay.Counts(), a.preread)
	s.status = StatusOK
	if len(s.server.phases[Log]) > 0 { // writing a log may take time
		go s.finish(nil)
		return
	}
	s.finish(nil)
}

// runAway moves a connected session without its goroutine, if the kernel can
// move it and no rate delays it.
func (p *ProxyPass) runAway(s *Session, up net.Conn, t *try, config splice.Config) bool {
	if config.UploadRate > 0 || config.DownloadRate > 0 {
		return false
	}
	client, upstream, ok := splice.Detach(s.Conn, up)
	if !ok {
		return false
	}
	_, tcp := s.Conn.(*net.TCPConn)
	_, tcp2 := up.(*net.TCPConn)
	loop, err := evloop.Acquire()
	if err != nil { // the descriptors for one
		_, _ = unix.Close(client), unix.Close(upstream)
		p.moved(s, t, splice.WriteFailed, splice.Counts{}, 0)
		return true
	}
	a := &away{pass: p, session: s, try: t, preread: len(config.Preread)}
	a.relay.Init(loop, client, upstream, tcp && tcp2, config, a)
	s.Conn = nil
	s.moveBy(&a.relay)
	p.bind(s, t)
	a.relay.Start(false)
	return true
}
