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
	m := &mover{d: d}
	if dst, ok := plain(d.dst); ok {
		m.pool = pickPool()
		return m.run(src, dst)
	}
	return m.run(src, nil)
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

// mover moves from a plain source, through a pipe if pool is set and else
// through a buffer. Between two rounds it holds at most an empty pipe or buffer,
// and neither while it waits for the source.
//
// Reading and writing are separate calls: nobody who closes one connection has
// to wait for the other.
type mover struct {
	d    *direction
	most int // bytes to read in this round

	pool   *pipePool
	pipe   *pipe
	inPipe int

	buf   *[]byte
	inBuf int

	failed error // of the system call that ended the last Read or Write
}

const spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK

func (m *mover) run(src, dst syscall.RawConn) outcome {
	fill, drain := m.fill, m.drain // bound once
	for {
		var ok bool
		if m.most, ok = m.d.quota(); !ok {
			return sourceEnded
		}
		// An error of Read itself is that the connection was closed or the
		// session stopped.
		if err := src.Read(fill); err != nil || m.inPipe+m.inBuf == 0 {
			m.release()
			return sourceEnded
		}
		m.d.onRead(m.inPipe + m.inBuf)
		if m.inPipe > 0 {
			if err := dst.Write(drain); err != nil || m.failed != nil {
				m.pipe.close() // there are bytes in it
				return writeFailed
			}
		} else {
			n, err := m.d.dst.Write((*m.buf)[:m.inBuf])
			m.d.onWrite(n)
			m.inBuf = 0
			if err != nil {
				m.release()
				return writeFailed
			}
		}
		if m.d.limit.rate > 0 {
			m.release() // a pause comes
		}
	}
}

// release gives back what is empty.
func (m *mover) release() {
	if m.pipe != nil {
		m.pool.put(m.pipe)
		m.pipe = nil
	}
	putBuffer(m.buf)
	m.buf = nil
}

// fill takes from the source what is there, and waits if nothing is. At the
// source's end it leaves pipe and buffer empty.
func (m *mover) fill(fd uintptr) bool {
	for m.pool != nil {
		if m.pipe == nil {
			var err error
			if m.pipe, err = m.pool.get(); err != nil {
				break // no descriptors: copy this time
			}
		}
		n, err := unix.Splice(int(fd), nil, m.pipe.w, nil, m.most, spliceFlags)
		switch err {
		case nil:
			m.inPipe = int(n)
			return true
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			m.release()
			if !urgentIsNext(fd) {
				return false
			}
			m.pool = nil
			continue
		case unix.EINVAL: // a socket that cannot be spliced
			m.release()
			m.pool = nil
			continue
		}
		return true
	}
	return m.fillBuffer(fd)
}

// urgentIsNext reports whether a TCP socket has got to urgent data, at which
// splice stops for good. A read leaves it out, as nginx's does.
func urgentIsNext(fd uintptr) bool {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCATMARK)
	return err == nil && n != 0
}

func (m *mover) fillBuffer(fd uintptr) bool {
	if m.buf == nil {
		m.buf = getBuffer(m.d.s.cfg.BufferSize)
	}
	b := *m.buf
	for {
		n, err := unix.Read(int(fd), b[:min(m.most, len(b))])
		switch err {
		case nil:
			m.inBuf = n
			return true
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			m.release()
			return false
		}
		return true
	}
}

// drain empties the pipe into the destination.
func (m *mover) drain(fd uintptr) bool {
	for m.inPipe > 0 {
		n, err := unix.Splice(m.pipe.r, nil, int(fd), nil, m.inPipe, spliceFlags)
		switch err {
		case nil:
			m.inPipe -= int(n)
			m.d.spliced.Add(int64(n))
			m.d.onWrite(int(n))
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			m.failed = err
			return true
		}
	}
	return true
}
