// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

const (
	// smallBody is the largest body that is sent with the head in one write. It
	// fits in any socket's buffers, so that it cannot block for long while the
	// server, answering early, does not read it.
	smallBody = 16 << 10
	// copySize is the size of the pieces in which a larger body is sent.
	copySize = 32 << 10
	// sizeLine is room for a chunk's size line in front of a piece.
	sizeLine = 8
	// earlyAnswer is how long an answer may take after sending has broken.
	earlyAnswer = 5 * time.Second
	// finalWrite is how long the last write may take after the answer to it
	// has come, for the connection to be used again.
	finalWrite = 10 * time.Millisecond
	// finalRead is how long a client is waited for, in the middle of a body that
	// nobody wants any more.
	finalRead = 50 * time.Millisecond
)

// buffer holds a request's head and, if whole, all of its body.
type buffer struct {
	b     []byte
	whole bool
}

var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 2<<10)} }}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) free() {
	if b == nil || cap(b.b) > 2*smallBody+readBuffer {
		return
	}
	b.b, b.whole = b.b[:0], false
	buffers.Put(b)
}

// appendBody reads the whole small body behind the head.
func (x *trip) appendBody() error {
	b, n := x.buf.b, int(x.req.ContentLength)
	at := len(b)
	if cap(b)-at < n {
		b = append(make([]byte, 0, at+n), b...)
	}
	b = b[:at+n]
	x.buf.b, x.buf.whole = b, true
	_, err := io.ReadFull(x.req.Body, b[at:])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

var copies = sync.Pool{New: func() any { return new([sizeLine + copySize + 2]byte) }}

// sender sends a request's body in a goroutine of its own, so that the answer
// can be read, and passed on, before all of it has been sent.
type sender struct {
	x    *trip
	c    *conn
	body io.ReadCloser

	begin atomic.Int32 // whether the body is read: 0, sending or called off
	// cause is why sending failed, set before the reader is woken up.
	cause atomic.Pointer[exchange.Error]
	last  atomic.Bool  // the last write has begun
	owner atomic.Int32 // who closes the body: see orphan
	done  chan struct{}
}

const (
	sending   = 1
	calledOff = 2
)

// startBody sends the head and starts the sender.
func (x *trip) startBody() error {
	c := x.c
	// How long the client takes to send its body is not the server's fault.
	// The sender sets a limit for the answer when it is done.
	c.rd = time.Time{}
	c.set(c.raw.SetReadDeadline, time.Time{})
	if err := x.write(c, x.buf.b); err != nil {
		return err
	}
	x.body = &sender{x: x, c: c, body: x.req.Body, done: make(chan struct{})}
	go x.body.run()
	return nil
}

func (s *sender) run() {
	defer close(s.done)
	defer func() {
		if !s.owner.CompareAndSwap(0, 1) {
			_ = s.body.Close()
		}
	}()
	if !s.begin.CompareAndSwap(0, sending) {
		return
	}
	e := s.send()
	now, x := time.Now(), s.x
	if e == nil {
		s.c.set(s.c.raw.SetReadDeadline, now.Add(x.t.readTimeout))
		return
	}
	s.cause.Store(e)
	if e.Kind == exchange.Failed {
		s.c.set(s.c.raw.SetReadDeadline, now.Add(min(x.t.readTimeout, earlyAnswer)))
		return
	}
	s.c.abort()
}

// orphan hands the body over to the sender, to be closed when it has ended. It
// reports false if the sender has ended already.
func (s *sender) orphan() bool { return s.owner.CompareAndSwap(0, 1) }

// finished reports that nothing will be sent any more.
func (s *sender) finished() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// settled reports that the whole body has been sent. It waits a moment for a
// last write whose answer has come already.
func (s *sender) settled(wait bool) bool {
	if !s.finished() {
		if !wait || !s.last.Load() {
			return false
		}
		timer := time.NewTimer(finalWrite)
		defer timer.Stop()
		select {
		case <-s.done:
		case <-timer.C:
			return false
		}
	}
	s.c.rd = time.Time{} // the sender has moved it
	return s.cause.Load() == nil
}

// join waits for the end of the sender, whose connection has been closed. A
// body that may be sent again never waits for a client. Any other may: a client
// that has gone, or sends, ends that at once, so that nothing reads the body
// when the handler returns; one that does neither must get its answer first.
func (s *sender) join() {
	if _, ok := s.body.(exchange.Rewinder); ok {
		<-s.done
		return
	}
	timer := time.NewTimer(finalRead)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
}

// rewind prepares the body to be sent again.
func (x *trip) rewind() bool {
	s := x.body
	if s == nil || s.begin.CompareAndSwap(0, calledOff) {
		x.body = nil
		return true
	}
	r, ok := s.body.(exchange.Rewinder)
	if !ok || r.Rewind() != nil {
		return false
	}
	x.body = nil
	return true
}

func (s *sender) send() *exchange.Error {
	buf := copies.Get().(*[sizeLine + copySize + 2]byte)
	defer copies.Put(buf)
	if s.x.plan.framing == chunked {
		return s.sendChunked(buf)
	}
	left := s.x.req.ContentLength
	for left > 0 {
		p := buf[:min(left, copySize)]
		n, err := s.body.Read(p)
		if n > 0 {
			left -= int64(n)
			s.last.Store(left == 0)
			if e := s.write(p[:n]); e != nil {
				return e
			}
		}
		if err != nil && left > 0 {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return clientBody(err)
		}
	}
	return nil
}

func (s *sender) sendChunked(buf *[sizeLine + copySize + 2]byte) *exchange.Error {
	for {
		n, err := s.body.Read(buf[sizeLine : sizeLine+copySize])
		var out []byte
		if n > 0 {
			out = frameChunk(buf, n)
		}
		if err == io.EOF {
			trailer, refused := appendTrailer(out[len(out):len(out):len(out)], s.x.req.Trailer)
			if refused != nil {
				return &exchange.Error{Kind: exchange.Refused, Op: "write request", Status: refused.status, Err: refused.err}
			}
			s.last.Store(true)
			return s.write(append(out, trailer...))
		}
		if n > 0 {
			if e := s.write(out); e != nil {
				return e
			}
		}
		if err != nil {
			return clientBody(err)
		}
	}
}

// frameChunk puts the size line in front of n bytes at sizeLine and the line
// end behind them.
func frameChunk(buf *[sizeLine + copySize + 2]byte, n int) []byte {
	var size [sizeLine]byte
	line := append(strconv.AppendInt(size[:0], int64(n), 16), '\r', '\n')
	start := sizeLine - len(line)
	copy(buf[start:], line)
	buf[sizeLine+n], buf[sizeLine+n+1] = '\r', '\n'
	return buf[start : sizeLine+n+2]
}

func clientBody(err error) *exchange.Error {
	return &exchange.Error{Kind: exchange.ClientBody, Op: "write request", Err: err}
}

func (s *sender) write(p []byte) *exchange.Error {
	s.c.writeWithin(time.Now(), s.x.t.sendTimeout)
	n, err := s.c.nc.Write(p)
	if n > 0 {
		s.x.a.AddSent(int64(n))
	}
	if err != nil {
		return &exchange.Error{Kind: answerKind(err), Op: "send request", Err: err}
	}
	return nil
}
