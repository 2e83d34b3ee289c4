// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"net"
	"slices"

	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/evloop"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/udpbatch"
)

// udpOnLoop reads a listening socket on an event loop: one that others use, too,
// or one of its own while a handler of its server may wait.
type udpOnLoop struct {
	u  *udpSocket
	fd int

	// Used by one configuration's start or stop at a time, under the socket's lock.
	loop *evloop.Loop
	own  bool

	token  evloop.Token // used on the loop, as what follows
	closed bool
	handle func([]udpbatch.Packet) bool // received, bound once
}

func waits(v *servers) bool {
	return slices.ContainsFunc(v.list, func(s *Server) bool { return s.udpWaits })
}

func loopFor(own bool) (*evloop.Loop, error) {
	if own {
		return evloop.Private()
	}
	return evloop.Acquire()
}

func (u *udpSocket) read(*net.UDPConn) (udpReader, error) {
	own := waits(u.owner.current.Load())
	loop, err := loopFor(own)
	if err != nil {
		return nil, err
	}
	r := &udpOnLoop{u: u, loop: loop, own: own}
	r.handle = func(packets []udpbatch.Packet) bool { u.received(packets, r.loop.Now()); return false }
	if r.fd, err = u.batch.Detach(); err == nil {
		err = r.enter()
	}
	if err != nil {
		loop.Release()
		return nil, err
	}
	return r, nil
}

// enter begins to read on the loop.
func (r *udpOnLoop) enter() error {
	done := make(chan error)
	r.loop.Post(func() {
		var err error
		r.token, err = r.loop.Add(r.fd, evloop.Level, r)
		done <- err
	})
	return <-done
}

// use moves the socket between loops if the new servers need that. If there are
// no descriptors for a loop, it stays where it is.
func (r *udpOnLoop) use(v *servers) {
	own := waits(v)
	if own == r.own {
		return
	}
	loop, err := loopFor(own)
	if err != nil {
		r.u.failed(err)
		return
	}
	left := make(chan struct{})
	r.loop.Post(func() {
		r.loop.Drop(r.fd, r.token)
		close(left)
	})
	<-left
	r.loop.Release()
	r.loop, r.own = loop, own
	if err := r.enter(); err != nil {
		r.u.failed(err)
	}
}

// close returns when the socket is closed.
func (r *udpOnLoop) close() error {
	done := make(chan error)
	r.loop.Post(func() {
		r.closed = true
		r.loop.Remove(r.token)
		done <- r.u.batch.Close()
	})
	err := <-done
	r.loop.Release()
	return err
}

// Ready implements evloop.Handler. What does not fit one batch is reported again.
func (r *udpOnLoop) Ready(uint32) {
	if r.closed {
		return
	}
	r.loop.Gather()
	if err := r.u.batch.Serve(r.handle); err != nil && !errors.Is(err, udpbatch.ErrEmpty) {
		r.u.failed(err)
	}
}

// udpLoop is where a session's datagrams from the server are read, if it is not
// on a goroutine of its own.
type udpLoop struct {
	*evloop.Loop
	fd     int
	token  evloop.Token // used on the loop, as what follows
	left   bool
	handle func([]udpbatch.Packet) bool
}

// join gives the session to a loop, unless a rate has to delay its datagrams.
func (u *udpSession) join() {
	if u.download.rate > 0 {
		return
	}
	loop, err := evloop.Acquire()
	if err != nil { // no descriptors: a goroutine needs none
		return
	}
	fd, err := u.batch.Detach()
	if err != nil {
		loop.Release()
		return
	}
	u.up = nil
	u.loop = udpLoop{Loop: loop, fd: fd}
	u.loop.handle = func(packets []udpbatch.Packet) bool { u.fromServer(packets, loop.Now()); return false }
}

// enter begins to read what comes from the server.
func (u *udpSession) enter() {
	u.loop.Post(func() {
		l := &u.loop
		if l.left {
			return
		}
		var err error
		if l.token, err = l.Add(l.fd, evloop.Level, u); err != nil {
			u.end(StatusInternal, nil)
		}
	})
}

// leave finishes the session, which has ended.
func (u *udpSession) leave() {
	u.loop.Post(func() {
		l := &u.loop
		l.left = true
		if l.token != (evloop.Token{}) {
			l.Remove(l.token)
		}
		_ = u.batch.Close()
		if len(u.session.server.phases[Log]) > 0 { // writing a log may take time
			go u.finish()
		} else {
			u.finish()
		}
		l.Release()
	})
}

// Ready implements evloop.Handler.
func (u *udpSession) Ready(uint32) {
	if u.loop.left {
		return
	}
	u.loop.Gather()
	if err := u.batch.Serve(u.loop.handle); err != nil && !errors.Is(err, udpbatch.ErrEmpty) {
		u.refused(err)
	}
}
