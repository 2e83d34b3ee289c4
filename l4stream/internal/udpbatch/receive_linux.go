// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiver is the state of a Receive.
type receiver struct {
	whole atomic.Bool // datagrams are sent one by one: see segment_linux.go

	read   func(uintptr) bool // readable, bound once
	handle func([]Packet) bool
	err    error
}

func (s *Socket) init() { s.sys.read = s.readable }

// wantLocal asks for the destination of each datagram.
func (s *Socket) wantLocal() error {
	var err error
	cerr := s.raw.Control(func(fd uintptr) {
		if s.v6 {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	if cerr != nil {
		return cerr
	}
	return err
}

// Serve waits for datagrams and calls handle with those that are there, again and
// again until handle returns false. An error of the socket that concerns one
// datagram, such as the refusal (syscall.ECONNREFUSED) that a connected socket got
// for one sent, is returned once and the socket goes on. handle must not close the
// socket, for closing waits for it.
func (s *Socket) Serve(handle func([]Packet) bool) error {
	x := &s.sys
	x.handle, x.err = handle, nil
	if err := s.raw.Read(x.read); err != nil {
		return err
	}
	return x.err
}

// readable handles what there is. It does not return to Go's poller in between,
// which would forget that the socket is readable again, and so need not look
// whether it is: fewer datagrams than fit were all.
func (s *Socket) readable(fd uintptr) bool {
	x := &s.sys
	r := s.borrowRing()
	defer s.giveBack(r)
	for {
		packets, e := r.receive(fd)
		switch e {
		case 0:
			if !x.handle(packets) {
				return true
			}
			if len(packets) < len(r.hdrs) {
				return false
			}
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			x.err = os.NewSyscallError("recvmmsg", e)
			return true
		}
	}
}

// addrOf reads a socket address.
func addrOf(sa *unix.RawSockaddrInet6) netip.AddrPort {
	switch sa.Family {
	case unix.AF_INET:
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(sa4.Addr), swap(sa4.Port))
	case unix.AF_INET6:
		a := netip.AddrFrom16(sa.Addr).Unmap()
		if sa.Scope_id != 0 && a.Is6() {
			a = a.WithZone(strconv.FormatUint(uint64(sa.Scope_id), 10))
		}
		return netip.AddrPortFrom(a, swap(sa.Port))
	}
	return netip.AddrPort{}
}

// swap converts a port between the machine's order and the network's.
func swap(p uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// localOf finds the destination in control messages.
func localOf(oob []byte) netip.Addr {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		var a netip.Addr
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			a = netip.AddrFrom4([4]byte(data[4:8])) // the local address, not the header's
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			a = netip.AddrFrom16([16]byte(data[:16])).Unmap()
		}
		if a.IsValid() && !a.IsMulticast() {
			return a
		}
		oob = rest
	}
	return netip.Addr{}
}

// Source makes the form of a local address that a Sender of this socket takes.
// It is made once per session and may be used by any number of sends.
func (s *Socket) Source(local netip.Addr) Source {
	if !local.IsValid() {
		return nil
	}
	if s.v6 {
		return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: local.As16()})
	}
	if local = local.Unmap(); !local.Is4() {
		return nil
	}
	return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: local.As4()})
}
