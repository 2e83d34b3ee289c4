// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package upstreamkeepalive

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// asker sends a request that is one piece and waits for the first bytes of the
// answer, as one operation on the socket. Done by net.Conn, each step would lock
// the socket and prepare the poller by itself, and the read would first find out
// in vain that there is no answer yet.
type asker struct {
	socket syscall.RawConn
	do     func(fd uintptr) bool // conn.askOnce; made once

	out  []byte // the request
	step askStep
	sent int
	got  int
	err  error // of the last step
}

type askStep uint8

const (
	look  askStep = iota // whether the server is silent
	write                // the request
	read                 // the answer
	ahead                // read: take returns what came
)

// asks reports whether c can ask: the bytes on the socket are those of HTTP.
func (c *conn) asks() bool { return c.asker.socket != nil && c.gate == nil }

// ask sends out, which c has room to look and read for, and waits for the answer,
// which the next fill delivers, as it does an error. If unseen, it looks first
// whether the server is silent; if not the error is errNoisy. It returns less
// than len(out) without an error if sending would have to wait.
func (c *conn) ask(out []byte, unseen bool) (sent int, err error) {
	a := &c.asker
	if a.do == nil {
		a.do = c.askOnce
	}
	c.r, c.w = 0, 0
	a.out, a.step, a.sent, a.got, a.err = out, write, 0, 0, nil
	if unseen {
		a.step = look
	}
	if err = a.socket.Read(a.do); err == nil {
		err = a.err
	}
	a.out = nil
	if a.step != read {
		return a.sent, err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		op.Op = "read" // not raw-read
	}
	a.step, a.err = ahead, err
	return a.sent, nil
}

// askOnce goes as far as it can without waiting. It returns false to be called
// again when the server has sent something. The poller has been prepared before,
// so that nothing is missed that comes after the look.
func (c *conn) askOnce(fd uintptr) bool {
	a := &c.asker
	if a.step == look {
		if _, err := receive(fd, c.buf); err != syscall.EAGAIN {
			a.err = errNoisy
			return true
		}
		a.step = write
	}
	if a.step == write {
		n, err := syscall.Write(int(fd), a.out)
		switch {
		case n == len(a.out):
			a.sent, a.step = n, read
			return false
		case err == nil:
			a.sent = n
		case err != syscall.EAGAIN && err != syscall.EINTR:
			a.err = c.failed("write", err)
		}
		return true
	}
	n, err := receive(fd, c.buf)
	switch {
	case err == syscall.EAGAIN, err == syscall.EINTR:
		return false
	case err != nil:
		a.err = c.failed("read", err)
	case n == 0:
		a.err = io.EOF
	}
	a.got = max(n, 0)
	return true
}

// take returns what ask has read, once.
func (a *asker) take() (n int, ok bool, err error) {
	if a.step != ahead {
		return 0, false, nil
	}
	a.step = look
	return a.got, true, a.err
}

// failed is the error as net.Conn has it.
func (c *conn) failed(op string, err error) error {
	return &net.OpError{
		Op: op, Net: c.raw.LocalAddr().Network(), Source: c.raw.LocalAddr(), Addr: c.raw.RemoteAddr(),
		Err: os.NewSyscallError(op, err),
	}
}
