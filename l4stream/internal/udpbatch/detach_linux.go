// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrEmpty: a detached socket has no datagrams.
var ErrEmpty = errors.New("udpbatch: no datagrams")

// Detach takes the socket out of Go's poller and closes its connection. From then
// on nothing waits: Serve returns ErrEmpty when there are no datagrams, Flush is
// TryFlush. The descriptor is for an event loop, on whose goroutine Serve and
// Close are to be called.
func (s *Socket) Detach() (fd int, err error) {
	cerr := s.raw.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err := errors.Join(cerr, os.NewSyscallError("fcntl", err)); err != nil {
		return -1, err
	}
	_ = s.conn.Close()
	s.conn, s.raw = nil, &detached{fd: fd}
	return fd, nil
}

// Close closes a detached socket.
func (s *Socket) Close() error { return s.raw.(*detached).close() }

// detached is the raw form of a socket that does not wait. Reading and closing
// happen on one goroutine; writing on any.
type detached struct {
	mu     sync.RWMutex // held to write while closed must not change
	closed bool
	fd     int
}

func (d *detached) Read(f func(uintptr) bool) error {
	switch {
	case d.closed:
		return net.ErrClosed
	case !f(uintptr(d.fd)):
		return ErrEmpty
	}
	return nil
}

func (d *detached) Write(f func(uintptr) bool) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	switch {
	case d.closed:
		return net.ErrClosed
	case !f(uintptr(d.fd)):
		return ErrDropped
	}
	return nil
}

func (d *detached) Control(f func(uintptr)) error {
	return d.Write(func(fd uintptr) bool { f(fd); return true })
}

func (d *detached) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	d.closed = true
	return unix.Close(d.fd)
}
