// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sender collects datagrams and sends them together. It is used by one
// goroutine at a time; a socket may have many. It is large, and so is borrowed
// when there is something to send: those who send one after the other use the
// same, which is in the processor's cache.
type Sender struct {
	s     *Socket
	write func(uintptr) bool // writable, bound once
	n     int                // datagrams collected
	drop  bool               // give up what does not fit the socket's buffer
	err   error              // the first of this flush

	iovs     [Batch]unix.Iovec
	names    [Batch]unix.RawSockaddrInet6
	nameLens [Batch]uint32
	datas    [Batch][]byte // for the garbage collector
	oobs     [Batch]Source

	// The messages that the datagrams are sent in; see segment_linux.go.
	hdrs  [Batch]mmsghdr
	first [Batch]int            // datagram of each message
	msgs  int                   // messages
	sent  int                   // of them, sent or given up
	ctls  *[Batch][ctlSize]byte // control messages of those with segments
}

var senders = sync.Pool{New: func() any {
	w := &Sender{}
	w.write = w.writable
	return w
}}

// NewSender borrows an empty sender, until its Release.
func (s *Socket) NewSender() *Sender {
	w := senders.Get().(*Sender)
	w.s = s
	return w
}

// Release gives the sender back, which must be empty; it must not be used any
// more.
func (w *Sender) Release() {
	w.s = nil
	senders.Put(w)
}

// Len is how many datagrams were added since the last flush.
func (w *Sender) Len() int { return w.n }

// Add puts a datagram in the batch; data and src must stay as they are until it
// is flushed. to is not valid on a connected socket. False: the batch is full,
// flush it first.
func (w *Sender) Add(data []byte, to netip.AddrPort, src Source) bool {
	if w.n == Batch {
		return false
	}
	i := w.n
	w.n++
	w.datas[i], w.oobs[i] = data, src
	w.iovs[i] = unix.Iovec{}
	if len(data) > 0 {
		w.iovs[i].Base = &data[0]
		w.iovs[i].SetLen(len(data))
	}
	w.nameLens[i] = 0
	if to.IsValid() {
		w.nameLens[i] = putAddr(&w.names[i], to, w.s.v6)
	}
	return true
}

// putAddr writes a socket address for a socket of either family.
func putAddr(sa *unix.RawSockaddrInet6, to netip.AddrPort, v6 bool) uint32 {
	if v6 {
		*sa = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swap(to.Port()), Addr: to.Addr().As16()}
		if z := to.Addr().Zone(); z != "" {
			id, _ := strconv.ParseUint(z, 10, 32) // as addrOf wrote it
			sa.Scope_id = uint32(id)
		}
		return unix.SizeofSockaddrInet6
	}
	sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
	*sa4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swap(to.Port())}
	if a := to.Addr().Unmap(); a.Is4() {
		sa4.Addr = a.As4()
	}
	return unix.SizeofSockaddrInet4
}

// Flush sends what was added and empties the batch. It waits while the socket's
// buffer is full. A datagram that cannot be sent is skipped and its error
// returned, the first if there are more.
func (w *Sender) Flush() error { return w.flush(false) }

// TryFlush is Flush for those who must not wait: it drops what does not fit,
// and its error then wraps ErrDropped.
func (w *Sender) TryFlush() error { return w.flush(true) }

// ErrDropped: a datagram was dropped because the socket's buffer was full.
var ErrDropped = errors.New("udpbatch: datagram dropped: the socket's send buffer is full")

func (w *Sender) flush(drop bool) error {
	if w.n == 0 {
		return nil
	}
	w.drop, w.err = drop, nil
	w.build(0)
	err := w.s.raw.Write(w.write)
	runtime.KeepAlive(w)
	clear(w.datas[:w.n])
	clear(w.oobs[:w.n])
	w.n = 0
	if err != nil {
		return err
	}
	return w.err
}

func (w *Sender) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *Sender) writable(fd uintptr) bool {
	for w.sent < w.msgs {
		n, e := w.send(fd)
		switch {
		case e == 0:
			w.sent += n
		case e == unix.EINTR:
		case e == unix.EAGAIN:
			if !w.drop {
				return false
			}
			w.fail(ErrDropped)
			w.sent = w.msgs
		case w.hdrs[w.sent].hdr.Iovlen > 1 && cannotSegment(e):
			w.s.sys.whole.Store(true)
			w.build(w.first[w.sent])
		default: // of the first message that is not sent yet
			w.fail(os.NewSyscallError("sendmsg", e))
			w.sent++
		}
	}
	return true
}

// send makes one system call and returns how many messages have left. Of one
// message the kernel needs to be told less.
func (w *Sender) send(fd uintptr) (int, syscall.Errno) {
	h := &w.hdrs[w.sent].hdr
	var e syscall.Errno
	switch n := w.msgs - w.sent; {
	case n > 1:
		sent, _, e := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&w.hdrs[w.sent])), uintptr(n), 0, 0, 0)
		return int(sent), e
	case h.Iovlen > 1 || h.Controllen > 0:
		_, _, e = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(h)), 0)
	default:
		_, _, e = unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(h.Iov.Base)), uintptr(h.Iov.Len), 0, uintptr(unsafe.Pointer(h.Name)), uintptr(h.Namelen))
	}
	return 1, e
}
