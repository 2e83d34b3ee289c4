// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"net/netip"
	"strconv"
)

// Endpoint is one end of a client's connection.
type Endpoint struct {
	// Addr is the address and port; invalid for a unix socket.
	Addr netip.AddrPort
	// Path is the path of a unix socket, often empty for a client.
	Path string
}

// EndpointOf converts an address of package net. IPv4 addresses that a socket
// for both families reports as mapped IPv6 become IPv4: the client sent IPv4,
// and nginx's sockets are of one family. Other kinds of addresses count as
// unix sockets without a path.
func EndpointOf(a net.Addr) Endpoint {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	case *net.UnixAddr:
		return Endpoint{Path: a.Name}
	default:
		return Endpoint{}
	}
	return Endpoint{Addr: netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())}
}

func (e Endpoint) isUnix() bool { return !e.Addr.IsValid() }

// text is the address as nginx prints it.
func (e Endpoint) text(b []byte) []byte {
	if e.isUnix() {
		return append(append(b, "unix:"...), e.Path...)
	}
	return e.Addr.Addr().WithZone("").AppendTo(b)
}

// AppendV1 appends the version 1 line: the client's address and port (after
// realip) and the local address of its connection. It is the same for UDP.
func AppendV1(b []byte, client, local Endpoint) []byte {
	if client.isUnix() {
		return append(b, "PROXY UNKNOWN\r\n"...)
	}
	proto := "PROXY TCP4 "
	if client.Addr.Addr().Is6() {
		proto = "PROXY TCP6 "
	}
	b = append(b, proto...)
	b = append(client.text(b), ' ')
	b = append(local.text(b), ' ')
	b = append(strconv.AppendUint(b, uint64(client.Addr.Port()), 10), ' ')
	b = strconv.AppendUint(b, uint64(local.Addr.Port()), 10) // a unix socket's is 0
	return append(b, '\r', '\n')
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendV2 appends a version 2 header: the addresses, what is known of the
// client's TLS (nil: not TLS) and a CRC-32C of the header. udp says that the
// client's session is one of datagrams.
func AppendV2(b []byte, client, local Endpoint, udp bool, tls *TLSInfo) []byte {
	start := len(b)
	b = append(b, signature...)
	if client.isUnix() || local.isUnix() {
		b = append(b, v2Version<<4|cmdLocal, 0, 0, 0)
	} else {
		b = appendAddresses(b, client.Addr, local.Addr, udp)
	}
	if tls != nil {
		b = tls.append(b)
	}
	b = appendTLV(b, tlvCRC32C, "\x00\x00\x00\x00")
	header := b[start:]
	binary.BigEndian.PutUint16(header[14:], uint16(len(header)-v2Fixed))
	sum := crc32.Checksum(header, castagnoli)
	binary.BigEndian.PutUint32(header[len(header)-4:], sum)
	return b
}

// appendAddresses writes both addresses in one family: IPv4 if both are or are
// mapped from it, else IPv6.
func appendAddresses(b []byte, client, local netip.AddrPort, udp bool) []byte {
	trans := byte(transStream)
	if udp {
		trans = transDgram
	}
	c, l := client.Addr().Unmap(), local.Addr().Unmap()
	if c.Is4() && l.Is4() {
		b = append(b, v2Version<<4|cmdProxy, famIPv4<<4|trans, 0, 0)
		c4, l4 := c.As4(), l.As4()
		b = append(append(b, c4[:]...), l4[:]...)
	} else {
		b = append(b, v2Version<<4|cmdProxy, famIPv6<<4|trans, 0, 0)
		c16, l16 := c.As16(), l.As16()
		b = append(append(b, c16[:]...), l16[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, client.Port())
	return binary.BigEndian.AppendUint16(b, local.Port())
}
