// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// flow is one direction of a relay. The state is the loop's; the counters may be
// read by anyone.
type flow struct {
	r         *Relay
	src, dst  *end
	firstByte func() // nil once called

	readable bool // the source may have something
	last     bool // what it has may be followed by its end or an error
	blocked  bool // the destination takes nothing; it will be told when
	ended    bool // the source has
	copies   bool // the kernel does not splice this socket, or not all of it

	pipe   *pipe
	inPipe int
	rest   []byte // read, and not yet written
	buf    *[]byte

	read, written, spliced atomic.Int64
}

// turns is how often one flow moves before others have their turn: as much each
// time as the pipe takes, which is the less work for each byte the more it is.
const turns = 4

// move moves what can be moved now.
func (f *flow) move() {
	for n := 0; ; n++ {
		if !f.drain() {
			return
		}
		switch {
		case !f.readable || f.ended:
			f.release()
			return
		case n == turns:
			f.release()
			f.r.loop.Again(f.src)
			return
		}
		if !f.fill() {
			return
		}
	}
}

// drain writes what has been read. False: not all of it, or the session has
// ended.
func (f *flow) drain() bool {
	for !f.blocked && f.inPipe+len(f.rest) > 0 {
		var n int
		var err error
		if f.inPipe > 0 {
			var n64 int64
			n64, err = unix.Splice(f.pipe.r, nil, f.dst.fd, nil, f.inPipe, spliceFlags)
			n = int(n64)
		} else {
			n, err = unix.Write(f.dst.fd, f.rest)
		}
		switch err {
		case nil:
			f.onWrite(n)
		case unix.EINTR:
		case unix.EAGAIN:
			f.blocked = true
		default:
			f.r.stop(WriteFailed)
			return false
		}
	}
	return !f.blocked
}

func (f *flow) onWrite(n int) {
	f.written.Add(int64(n))
	f.r.active = f.r.loop.Now()
	if f.inPipe > 0 {
		f.inPipe -= n
		f.spliced.Add(int64(n))
		return
	}
	if f.rest = f.rest[n:]; len(f.rest) == 0 {
		f.rest = nil
	}
}

// fill reads what there is, when all that was read has been written. False: the
// source has ended.
func (f *flow) fill() bool {
	n, err := f.take()
	switch {
	case err == nil && n > 0:
		f.read.Add(int64(n))
		f.r.active = f.r.loop.Now()
		if f.firstByte != nil {
			f.firstByte()
			f.firstByte = nil
		}
		// The pipe had room for more pieces, so there were no more. Sockets that
		// keep messages apart may stop earlier.
		if f.pipe != nil && n < f.pipe.slots && f.src.tcp && !f.last {
			f.readable = false
		}
		return true
	case err == unix.EAGAIN:
		f.readable = false
		return true
	case err == unix.EINTR:
		return true
	}
	f.release()
	f.r.sourceEnded(f)
	return false
}

// take reads into the pipe, or into a buffer where that cannot be.
func (f *flow) take() (int, error) {
	switch {
	case f.copies && f.pipe != nil:
		f.release()
	case !f.copies && f.pipe == nil:
		f.pipe, _ = pools[0].get() // else no descriptors: copy this time
	}
	if f.pipe != nil {
		n, err := unix.Splice(f.src.fd, nil, f.pipe.w, nil, maxChunk, spliceFlags)
		if err != unix.EINVAL {
			f.inPipe = max(int(n), 0)
			return f.inPipe, err
		}
		f.copies = true
		f.release()
	}
	if f.buf == nil {
		f.buf = getBuffer(f.r.cfg.BufferSize)
	}
	n, err := unix.Read(f.src.fd, *f.buf)
	f.rest = (*f.buf)[:max(n, 0)]
	return n, err
}

// release gives back what is empty.
func (f *flow) release() {
	if f.pipe != nil {
		pools[0].put(f.pipe)
		f.pipe = nil
	}
	putBuffer(f.buf)
	f.buf = nil
}

// drop gives up what is left at the end of a session.
func (f *flow) drop() {
	if f.inPipe > 0 {
		f.pipe.close()
		f.pipe, f.inPipe = nil, 0
	}
	f.rest = nil
	f.release()
}
