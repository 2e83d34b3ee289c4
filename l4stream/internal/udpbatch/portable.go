// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package udpbatch

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

type receiver struct{}

func (s *Socket) init() {}

type room struct {
	data   [MaxDatagram]byte
	oob    [128]byte
	packet [1]Packet
}

var rooms = sync.Pool{New: func() any { return new(room) }}

func (s *Socket) wantLocal() error {
	if s.v6 {
		return ipv6.NewPacketConn(s.conn).SetControlMessage(ipv6.FlagDst, true)
	}
	return ipv4.NewPacketConn(s.conn).SetControlMessage(ipv4.FlagDst, true)
}

// Serve waits for datagrams and calls handle with each, until it returns false.
func (s *Socket) Serve(handle func([]Packet) bool) error {
	r := rooms.Get().(*room)
	defer rooms.Put(r)
	for {
		n, oobn, _, from, err := s.conn.ReadMsgUDPAddrPort(r.data[:], r.oob[:])
		if err != nil {
			return err
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if s.peer {
			from = netip.AddrPort{}
		}
		r.packet[0] = Packet{Data: r.data[:n], From: from, Local: s.localOf(r.oob[:oobn])}
		if !handle(r.packet[:]) {
			return nil
		}
	}
}

func (s *Socket) localOf(oob []byte) netip.Addr {
	if len(oob) == 0 {
		return netip.Addr{}
	}
	var dst net.IP
	if s.v6 {
		var m ipv6.ControlMessage
		if m.Parse(oob) == nil {
			dst = m.Dst
		}
	} else {
		var m ipv4.ControlMessage
		if m.Parse(oob) == nil {
			dst = m.Dst
		}
	}
	a, ok := netip.AddrFromSlice(dst)
	if a = a.Unmap(); !ok || a.IsMulticast() {
		return netip.Addr{}
	}
	return a
}

// Source makes the form of a local address that a Sender of this socket takes.
func (s *Socket) Source(local netip.Addr) Source {
	switch {
	case !local.IsValid():
		return nil
	case s.v6:
		return (&ipv6.ControlMessage{Src: local.AsSlice()}).Marshal()
	}
	return (&ipv4.ControlMessage{Src: local.Unmap().AsSlice()}).Marshal()
}

// ErrDropped: a datagram was dropped because the socket's buffer was full.
var ErrDropped = errors.New("udpbatch: datagram dropped: the socket's send buffer is full")

type message struct {
	data []byte
	to   netip.AddrPort
	src  Source
}

// Sender collects datagrams and sends them one after the other.
type Sender struct {
	s *Socket
	q []message
}

var senders = sync.Pool{New: func() any { return new(Sender) }}

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
func (w *Sender) Len() int { return len(w.q) }

// Add puts a datagram in the batch; data and src must stay as they are until it
// is flushed. False: the batch is full, flush it first.
func (w *Sender) Add(data []byte, to netip.AddrPort, src Source) bool {
	if len(w.q) == Batch {
		return false
	}
	w.q = append(w.q, message{data, to, src})
	return true
}

// Flush sends what was added. The first error is returned.
func (w *Sender) Flush() error {
	var first error
	for _, m := range w.q {
		if _, _, err := w.s.conn.WriteMsgUDPAddrPort(m.data, m.src, m.to); err != nil && first == nil {
			first = err
		}
	}
	clear(w.q)
	w.q = w.q[:0]
	return first
}

// TryFlush is Flush: here a datagram never waits for long.
func (w *Sender) TryFlush() error { return w.Flush() }
