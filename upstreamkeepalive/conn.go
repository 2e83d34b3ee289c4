// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// readBuffer holds most response headers and small bodies.
	readBuffer = 4 << 10
	// keptBuffer is the largest buffer that an idle connection keeps.
	keptBuffer = 16 << 10
)

// longAgo is a deadline that has passed: it ends every pending operation.
var longAgo = time.Unix(1, 0)

// conn is one connection to a server. It belongs to one request at a time, or
// to the cache while idle; only aborted, closed and the deadlines are touched
// by anyone else.
type conn struct {
	raw  net.Conn // the socket
	nc   net.Conn // raw, or TLS over gate over raw
	gate *gate    // nil without TLS
	// tlsState is that of the handshake, nil without TLS.
	tlsState *tls.ConnectionState

	fd int // raw's descriptor, -1 if unknown; valid while not closed

	cache   *cache
	bucket  *bucket
	created time.Time

	requests int // sent on it, the current one included

	// rd and wd are the deadlines in force; zero means unknown.
	rd, wd time.Time

	asker asker

	buf  []byte
	r, w int // buf[r:w] is received and not yet used

	aborted atomic.Bool
	closed  atomic.Bool

	// While idle; all guarded by cache.mu.
	idle    bool
	gen     uint64 // counts the times it became idle
	expires time.Time
	links   [lists]link
}

func newConn(raw net.Conn, now time.Time) *conn {
	c := &conn{raw: raw, nc: raw, fd: -1, created: now, buf: make([]byte, readBuffer)}
	if sc, ok := raw.(syscall.Conn); ok {
		if rc, err := sc.SyscallConn(); err == nil {
			c.asker.socket = rc
			_ = rc.Control(func(fd uintptr) { c.fd = int(fd) })
		}
	}
	return c
}

// slack is how much later than asked a timeout of d may strike, so that busy
// connections need not move their deadlines each time. It never strikes early.
func slack(d time.Duration) time.Duration { return min(d/32, time.Second) }

// due returns the deadline for an operation of at most d that starts now, and
// whether it differs enough from the one in force to be set.
func due(inForce, now time.Time, d time.Duration) (time.Time, bool) {
	want, s := now.Add(d), slack(d)
	if early := inForce.Sub(want); early >= 0 && early <= s {
		return inForce, false
	}
	return want.Add(s), true
}

// deadlines prepares for one write and the read after it.
func (c *conn) deadlines(now time.Time, write, read time.Duration) {
	wd, moveW := due(c.wd, now, write)
	rd, moveR := due(c.rd, now, read)
	switch {
	case write == read && (moveW || moveR):
		c.wd, c.rd = wd, wd
		c.set(c.raw.SetDeadline, wd)
	default:
		if moveW {
			c.wd = wd
			c.set(c.raw.SetWriteDeadline, wd)
		}
		if moveR {
			c.rd = rd
			c.set(c.raw.SetReadDeadline, rd)
		}
	}
}

func (c *conn) readWithin(now time.Time, d time.Duration) {
	if rd, move := due(c.rd, now, d); move {
		c.rd = rd
		c.set(c.raw.SetReadDeadline, rd)
	}
}

func (c *conn) writeWithin(now time.Time, d time.Duration) {
	if wd, move := due(c.wd, now, d); move {
		c.wd = wd
		c.set(c.raw.SetWriteDeadline, wd)
	}
}

// set moves a deadline without losing an abort that comes at the same time:
// whoever comes second sees the other.
func (c *conn) set(f func(time.Time) error, t time.Time) {
	_ = f(t)
	if c.aborted.Load() {
		_ = f(longAgo)
	}
}

// abort ends every pending and future operation on c, which stays open.
func (c *conn) abort() {
	c.aborted.Store(true)
	_ = c.raw.SetDeadline(longAgo)
}

// closeNow closes the socket without a farewell. It never blocks.
func (c *conn) closeNow() {
	if c.closed.CompareAndSwap(false, true) {
		_ = c.raw.Close()
		c.gone()
	}
}

// close is for a healthy connection: TLS sends its close_notify.
func (c *conn) close() {
	if c.closed.CompareAndSwap(false, true) {
		_ = c.nc.Close()
		c.gone()
	}
}

func (c *conn) gone() {
	if c.bucket != nil {
		c.cache.dropped(c.bucket)
	}
}

// fill reads once from the server into free space of buf.
func (c *conn) fill() (int, error) {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if n, ok, err := c.asker.take(); ok {
		c.w = n
		return n, err
	}
	if c.w == len(c.buf) {
		if c.r == 0 {
			return 0, io.ErrShortBuffer
		}
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	n, err := c.nc.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return n, nil // an error comes again with the next read
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return 0, err
}

// grow doubles buf, up to limit bytes. It reports whether there is room now.
func (c *conn) grow(limit int) bool {
	if len(c.buf) >= limit {
		return false
	}
	b := make([]byte, min(2*len(c.buf), limit))
	c.w = copy(b, c.buf[c.r:c.w])
	c.r, c.buf = 0, b
	return true
}

// quiet reports that the server has sent nothing that was not asked for, as far
// as it has been received, and gives an oversized buffer back.
func (c *conn) quiet() bool {
	if c.r != c.w {
		return false
	}
	c.r, c.w = 0, 0
	if c.gate != nil && !c.gate.quiet(c.nc) {
		return false
	}
	if len(c.buf) > keptBuffer {
		c.buf = make([]byte, readBuffer)
	}
	return true
}
