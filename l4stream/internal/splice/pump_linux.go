// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pump moves until the source ends, in the cheapest way that both ends allow.
func (d *direction) pump() outcome {
	src, ok := plain(d.src)
	if !ok {
		return d.copyAll()
	}
	r := &reader{d: d}
	move := r.copyReadable
	if dst, ok := plain(d.dst); ok {
		r.dst, r.out, r.pool = dst, r.writable, pickPool()
		move = r.spliceReadable
	}
	// An error of Read itself is that the session was stopped.
	_ = src.Read(move)
	return r.end
}

// plain returns the raw form of a connection whose bytes are those of its
// socket, a stream.
func plain(c net.Conn) (syscall.RawConn, bool) {
	switch c := c.(type) {
	case *net.TCPConn:
		raw, err := c.SyscallConn()
		return raw, err == nil
	case *net.UnixConn:
		if a := c.LocalAddr(); a == nil || a.Network() != "unix" {
			return nil, false
		}
		raw, err := c.SyscallConn()
		return raw, err == nil
	}
	return nil, false
}

// reader is what happens when a plain source is readable. Its functions return
// true to stop and false to wait for more.
type reader struct {
	d   *direction
	end outcome

	// For splicing.
	dst    syscall.RawConn
	out    func(uintptr) bool // writable, bound once
	pool   *pipePool
	pipe   *pipe
	inPipe int
	outErr error
}

const spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK

// spliceReadable moves until the source has nothing more. It holds a pipe only
// while it runs; it waits, for the destination, only while the pipe has bytes.
func (r *reader) spliceReadable(fd uintptr) bool {
	for {
		most, ok := r.d.quota()
		if !ok {
			return true
		}
		if r.pipe == nil {
			var err error
			if r.pipe, err = r.pool.get(); err != nil {
				return r.copyReadable(fd) // no descriptors: copy this time
			}
		}
		n, err := unix.Splice(int(fd), nil, r.pipe.w, nil, most, spliceFlags)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			r.release()
			return false
		case err == unix.EINVAL:
			r.release()
			return r.copyReadable(fd) // a socket that cannot be spliced
		case err != nil || n == 0:
			r.release()
			return true
		}
		r.d.onRead(int(n))
		r.inPipe = int(n)
		if err := r.dst.Write(r.out); err != nil || r.outErr != nil {
			r.pipe.close() // there are bytes in it
			r.end = writeFailed
			return true
		}
		if r.d.limit.rate > 0 {
			r.release() // a pause comes
		}
	}
}

func (r *reader) release() {
	r.pool.put(r.pipe)
	r.pipe = nil
}

// writable empties the pipe into the destination.
func (r *reader) writable(fd uintptr) bool {
	for r.inPipe > 0 {
		n, err := unix.Splice(r.pipe.r, nil, int(fd), nil, r.inPipe, spliceFlags)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil:
			r.outErr = err
			return true
		default:
			r.inPipe -= int(n)
			r.d.spliced.Add(int64(n))
			r.d.onWrite(int(n))
		}
	}
	return true
}

// copyReadable copies until the source has nothing more. It takes a buffer only
// while it runs.
func (r *reader) copyReadable(fd uintptr) bool {
	buf := getBuffer(r.d.s.cfg.BufferSize)
	defer putBuffer(buf)
	for {
		most, ok := r.d.quota()
		if !ok {
			return true
		}
		b := *buf
		n, err := unix.Read(int(fd), b[:min(most, len(b))])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err != nil || n == 0:
			return true
		}
		r.d.onRead(n)
		w, err := r.d.dst.Write(b[:n])
		r.d.onWrite(w)
		if err != nil {
			r.end = writeFailed
			return true
		}
	}
}
