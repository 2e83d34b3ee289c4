// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

const (
	// peerBatch is the most datagrams that are received at once from one peer:
	// most of what a larger batch saves is saved, and who reads with a rate
	// keeps the room for a while.
	peerBatch = 16
	// oobSize is room for one control message of either family.
	oobSize = 64
)

// ring is the room for one batch. Its headers point into itself for good.
type ring struct {
	hdrs    []mmsghdr
	iovs    []unix.Iovec
	bufs    [][]byte
	packets []Packet

	// On a connected socket the kernel is not asked for what is known.
	names []unix.RawSockaddrInet6 // large enough for IPv4 too
	oobs  [][oobSize]byte
	used  int // headers that the kernel may have written to
}

// newRing makes a ring of n datagrams in a space.
func newRing(n int, space []byte) *ring {
	r := &ring{hdrs: make([]mmsghdr, n), iovs: make([]unix.Iovec, n), bufs: make([][]byte, n), packets: make([]Packet, n)}
	for i := range r.hdrs {
		r.bufs[i] = space[i*MaxDatagram : (i+1)*MaxDatagram : (i+1)*MaxDatagram]
		r.iovs[i].Base = &r.bufs[i][0]
		r.iovs[i].SetLen(MaxDatagram)
		h := &r.hdrs[i].hdr
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
	}
	return r
}

// withAddresses makes the kernel write addresses and control messages.
func (r *ring) withAddresses() *ring {
	n := len(r.hdrs)
	r.names, r.oobs, r.used = make([]unix.RawSockaddrInet6, n), make([][oobSize]byte, n), n
	for i := range r.hdrs {
		h := &r.hdrs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Control = &r.oobs[i][0]
	}
	return r
}

// prepare sets what the kernel overwrites.
func (r *ring) prepare() {
	if r.names == nil {
		return
	}
	for i := range r.hdrs[:r.used] {
		h := &r.hdrs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(oobSize)
	}
	r.used = 0
}

// receive takes the datagrams that are there.
func (r *ring) receive(fd uintptr) ([]Packet, syscall.Errno) {
	r.prepare()
	n, _, e := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&r.hdrs[0])), uintptr(len(r.hdrs)), 0, 0, 0)
	if e != 0 {
		return nil, e
	}
	packets := r.packets[:n]
	for i := range packets {
		packets[i] = Packet{Data: r.bufs[i][:r.hdrs[i].len]}
	}
	if r.names != nil {
		r.used = min(int(n)+1, len(r.hdrs))
		r.address(packets)
	}
	return packets, 0
}

// address adds what the kernel has written of the datagrams' addresses.
func (r *ring) address(packets []Packet) {
	for i := range packets {
		packets[i].From = addrOf(&r.names[i])
		if c := r.hdrs[i].hdr.Controllen; c > 0 {
			packets[i].Local = localOf(r.oobs[i][:c])
		}
	}
}

var peerRings = sync.Pool{New: func() any { return newRing(peerBatch, make([]byte, peerBatch*MaxDatagram)) }}

// manyRings are those of sockets with many senders. They are kept for good: there
// are as many as goroutines that read such sockets at the same time.
var manyRings struct {
	mu   sync.Mutex // guards free
	free []*ring
}

// borrowRing takes a ring, until giveBack.
func (s *Socket) borrowRing() *ring {
	if s.peer {
		return peerRings.Get().(*ring)
	}
	m := &manyRings
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := len(m.free) - 1; last >= 0 {
		r := m.free[last]
		m.free = m.free[:last]
		return r
	}
	return newRing(Batch, untouched(Batch*MaxDatagram)).withAddresses()
}

func (s *Socket) giveBack(r *ring) {
	if s.peer {
		peerRings.Put(r)
		return
	}
	m := &manyRings
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, r)
}

// untouched is room of which little will ever be used: megabytes that Go's heap
// would count in full. It is never given back.
func untouched(size int) []byte {
	space, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return make([]byte, size)
	}
	_ = unix.Madvise(space, unix.MADV_NOHUGEPAGE) // a page is enough for most datagrams
	return space
}
