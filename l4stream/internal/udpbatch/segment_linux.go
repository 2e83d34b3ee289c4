// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Datagrams of one size to one place go through the kernel's stack as one
// message that is cut into segments at its end (UDP_SEGMENT): most of what a
// datagram costs is the way there.

const (
	// maxSegment is the largest datagram that is sent as a segment: one that
	// needs no fragments on any path that IPv6 allows.
	maxSegment = 1232
	// maxSegments and maxMessage are the most segments and bytes of one message.
	maxSegments = 64
	maxMessage  = 65535 - 60 - 8 // with the longest IPv4 header and UDP's
	// ctlSize is room for a source address and the size of segments.
	ctlSize = 64 + 24
)

// build makes messages of the datagrams from number from on.
func (w *Sender) build(from int) {
	w.msgs, w.sent = 0, 0
	for i := from; i < w.n; {
		n := 1
		if !w.s.sys.whole.Load() {
			n = w.run(i)
		}
		w.message(i, n)
		i += n
	}
}

// run is how many datagrams from i on can be segments of one message: all of
// one size but the last, which may be shorter.
func (w *Sender) run(i int) int {
	size := len(w.datas[i])
	if size == 0 || size > maxSegment {
		return 1
	}
	j, end := i+1, min(w.n, i+min(maxSegments, maxMessage/size))
	for ; j < end && len(w.datas[j]) == size && w.samePlace(i, j); j++ {
	}
	if j < end && len(w.datas[j]) > 0 && len(w.datas[j]) < size && w.samePlace(i, j) {
		j++
	}
	return j - i
}

func (w *Sender) samePlace(i, j int) bool {
	a, b := w.oobs[i], w.oobs[j]
	return w.nameLens[i] == w.nameLens[j] && (w.nameLens[i] == 0 || w.names[i] == w.names[j]) &&
		len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// message makes one message of n datagrams from i on.
func (w *Sender) message(i, n int) {
	m := w.msgs
	w.msgs++
	w.first[m] = i
	w.hdrs[m] = mmsghdr{}
	h := &w.hdrs[m].hdr
	h.Iov = &w.iovs[i]
	h.SetIovlen(n)
	if w.nameLens[i] > 0 {
		h.Name = (*byte)(unsafe.Pointer(&w.names[i]))
		h.Namelen = w.nameLens[i]
	}
	control := []byte(w.oobs[i])
	if n > 1 {
		control = w.segments(m, control, len(w.datas[i]))
	}
	if len(control) > 0 {
		h.Control = &control[0]
		h.SetControllen(len(control))
	}
}

// segments adds the size of segments to a message's control messages.
func (w *Sender) segments(m int, src []byte, size int) []byte {
	if w.ctls == nil {
		w.ctls = new([Batch][ctlSize]byte)
	}
	b := w.ctls[m][:]
	at := copy(b, src)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[at]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[at+unix.CmsgLen(0):], uint16(size))
	return b[:at+unix.CmsgSpace(2)]
}

// cannotSegment reports whether e may mean that the kernel, the device or the
// path has no segments for us.
func cannotSegment(e unix.Errno) bool {
	switch e {
	case unix.EINVAL, unix.EIO, unix.EOPNOTSUPP, unix.ENOPROTOOPT, unix.EMSGSIZE:
		return true
	}
	return false
}
