// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/evloop"
)

// acceptor accepts the connections of a TCP socket on an event loop.
type acceptor struct {
	socket *socket
	fd     int
	local  proxyproto.Endpoint
	wild   bool // connections have other local addresses

	loop   *evloop.Loop
	token  evloop.Token
	closed bool // used on the loop, as what follows
	pause  time.Duration
}

// listenDirect opens a socket for an event loop. It returns nil for one whose
// file Caddy looks after.
//
// The listener of package net, whose poller would be woken for every connection,
// is given up for a duplicate of its socket. Multipath TCP is not offered: such
// sockets cannot be spliced.
func listenDirect(s *socket, a address) (io.Closer, error) {
	if a.IsUnixNetwork() {
		return nil, nil
	}
	fd := -1
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
		return errors.Join(cerr, err)
	}}
	config.SetMultipathTCP(false)
	ln, err := a.listen(config)
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, err
	}
	local, ok := ln.Addr().(*net.TCPAddr)
	_ = ln.Close()
	if fd < 0 || !ok {
		return nil, fmt.Errorf("network %s: %s is not an address of TCP", a.Network, ln.Addr())
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // inherited by what is accepted
	acc := &acceptor{socket: s, fd: fd, local: proxyproto.EndpointOf(local), wild: local.IP.IsUnspecified()}
	if err := acc.start(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return acc, nil
}

func (a *acceptor) start() error {
	var err error
	if a.loop, err = evloop.Acquire(); err != nil {
		return err
	}
	added := make(chan error)
	a.loop.Post(func() {
		var err error
		a.token, err = a.loop.Add(a.fd, evloop.Level, a)
		added <- err
	})
	if err = <-added; err != nil {
		a.loop.Release()
	}
	return err
}

// Close ends accepting, and returns when the socket is closed.
func (a *acceptor) Close() error {
	done := make(chan error)
	a.loop.Post(func() {
		a.closed = true
		a.loop.Remove(a.token)
		done <- unix.Close(a.fd)
	})
	err := <-done
	a.loop.Release()
	return err
}

// Ready implements evloop.Handler: it accepts one connection. The loop calls it
// again for the next.
func (a *acceptor) Ready(uint32) {
	if a.closed {
		return
	}
	fd, from, err := unix.Accept4(a.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch err {
	case nil:
		a.pause = 0
		a.accepted(fd, from)
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
	default:
		a.pause = a.socket.pauseAfter(os.NewSyscallError("accept4", err), a.pause)
		_ = a.loop.Change(a.fd, a.token, evloop.None)
		time.AfterFunc(a.pause, func() { a.loop.Post(a.resume) })
	}
}

func (a *acceptor) resume() {
	if !a.closed {
		_ = a.loop.Change(a.fd, a.token, evloop.Level)
	}
}

func (a *acceptor) accepted(fd int, from unix.Sockaddr) {
	servers := a.socket.current.Load()
	server := servers.list[0]
	if server.direct && len(servers.list) == 1 {
		a.serveDirect(server, servers, fd, from)
		return
	}
	go func() {
		conn, err := connOf(fd)
		if err != nil { // no descriptors
			a.socket.logger.Load().Error("accepting a connection: " + err.Error())
			return
		}
		newSession(server, conn).run(servers)
	}()
	runtime.Gosched() // or it might have to wait until the loop does
}
