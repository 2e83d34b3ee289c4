// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

const (
	// Batch is the most datagrams of one system call.
	Batch = 64
	// MaxDatagram is the most a buffer takes, more than fits a UDP datagram.
	MaxDatagram = 65535
)

// Packet is a datagram that was received.
type Packet struct {
	// Data is valid until the function given to Serve returns.
	Data []byte
	// From is the sender; IPv4 is never in its mapped form. On a connected
	// socket, which has one peer, it is not valid.
	From netip.AddrPort
	// Local is the address the datagram was sent to, on a wildcard socket;
	// else, and for multicast, it is not valid.
	Local netip.Addr
}

// Socket is a UDP socket to receive and send on. Serve may be called from
// one goroutine at a time, beside any number of Senders.
type Socket struct {
	conn *net.UDPConn
	raw  syscall.RawConn
	v6   bool // a socket for IPv6, or for both
	wild bool // bound to a wildcard address
	peer bool // connected
	sys  receiver
}

// New wraps a socket. The socket stays the caller's to close, which ends a
// Serve that waits.
func New(conn *net.UDPConn) (*Socket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("udpbatch: %w", err)
	}
	s := &Socket{conn: conn, raw: raw, peer: conn.RemoteAddr() != nil}
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		s.v6 = a.IP.To4() == nil
		s.wild = a.IP == nil || a.IP.IsUnspecified()
	}
	if s.wild && !s.peer {
		if err := s.wantLocal(); err != nil {
			return nil, fmt.Errorf("udpbatch: asking for local addresses: %w", err)
		}
	}
	s.init()
	return s, nil
}

// Source is the form in which a Sender takes the address that a datagram is to
// leave from; empty for the kernel's choice.
type Source []byte
