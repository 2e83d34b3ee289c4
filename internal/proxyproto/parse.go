// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// MaxHeader is the most that is ever looked at for a header.
const MaxHeader = 4096

var (
	// ErrInvalid: the bytes are not a PROXY header, or a broken one.
	ErrInvalid = errors.New("proxyproto: invalid header")
	// ErrIncomplete: what is there is the beginning of a header.
	ErrIncomplete = errors.New("proxyproto: incomplete header")
	// ErrTooLarge: the header is longer than MaxHeader.
	ErrTooLarge = errors.New("proxyproto: header too large")
)

const (
	v1Prefix  = "PROXY "
	signature = "\r\n\r\n\x00\r\nQUIT\n"
	v2Fixed   = len(signature) + 4
)

// Header is what a PROXY header said. Without addresses (see HasAddresses) the
// address fields are empty.
type Header struct {
	// Version is 1 or 2.
	Version int
	// HasAddresses: the header named the two ends of a TCP connection.
	HasAddresses bool
	// SrcAddr and DstAddr are the client's address and the one it connected
	// to, as text: unchecked and as written in version 1.
	SrcAddr, DstAddr string
	SrcPort, DstPort uint16
	// TLVs is the raw list of version 2, a part of the bytes given to Parse.
	TLVs []byte
}

// Source returns the client's address, false if the header has none or it is
// not an address.
func (h *Header) Source() (netip.AddrPort, bool) {
	if !h.HasAddresses {
		return netip.AddrPort{}, false
	}
	a, err := netip.ParseAddr(h.SrcAddr)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, h.SrcPort), true
}

// Parse reads the header at the beginning of b and returns it with its length.
// Errors wrap ErrInvalid, ErrIncomplete or ErrTooLarge. It never looks beyond
// MaxHeader bytes.
func Parse(b []byte) (Header, int, error) {
	b = b[:min(len(b), MaxHeader)]
	if hasPrefixSoFar(b, signature) {
		if len(b) < v2Fixed {
			return Header{}, 0, incomplete(b)
		}
		return parseV2(b)
	}
	if !hasPrefixSoFar(b, v1Prefix) {
		return Header{}, 0, fmt.Errorf("%w: neither version 1 nor version 2", ErrInvalid)
	}
	if len(b) < len(v1Prefix) {
		return Header{}, 0, incomplete(b)
	}
	return parseV1(b)
}

// hasPrefixSoFar reports whether b starts with prefix, or is the start of it.
func hasPrefixSoFar(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

func incomplete(b []byte) error {
	if len(b) >= MaxHeader {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxHeader)
	}
	return fmt.Errorf("%w: %d bytes", ErrIncomplete, len(b))
}

func parseV1(b []byte) (Header, int, error) {
	h := Header{Version: 1}
	rest := b[len(v1Prefix):]
	const unknown, tcp = "UNKNOWN", "TCP"
	switch {
	case hasPrefixSoFar(rest, unknown):
		end := bytes.Index(b, []byte("\r\n"))
		if len(rest) < len(unknown) || end < 0 {
			return Header{}, 0, incomplete(b)
		}
		return h, end + 2, nil
	case !hasPrefixSoFar(rest, tcp):
		return Header{}, 0, fmt.Errorf("%w: unknown protocol", ErrInvalid)
	}
	l := line{b: b, rest: rest}
	l.protocol()
	h.SrcAddr = l.addr()
	h.DstAddr = l.addr()
	h.SrcPort = l.port(' ')
	h.DstPort = l.port('\r')
	l.newline()
	if l.err != nil {
		return Header{}, 0, l.err
	}
	h.HasAddresses = true
	return h, len(b) - len(l.rest), nil
}

// line reads the words of a version 1 line; after an error it reads nothing.
type line struct {
	b, rest []byte
	err     error
}

func (l *line) fail(what string) {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %s", ErrInvalid, what)
	}
}

func (l *line) protocol() {
	const n = len("TCP4 ")
	if len(l.rest) >= n {
		if p := string(l.rest[:n]); p != "TCP4 " && p != "TCP6 " {
			l.fail("unknown protocol")
		}
		l.rest = l.rest[n:]
		return
	}
	if len(l.rest) == n-1 && l.rest[n-2] != '4' && l.rest[n-2] != '6' {
		l.fail("unknown protocol")
		return
	}
	l.err = incomplete(l.b)
}

// word returns the bytes up to the end byte, all of which must be allowed.
func (l *line) word(end byte, what string, allowed func(byte) bool) string {
	if l.err != nil {
		return ""
	}
	for i, c := range l.rest {
		if c == end {
			w := string(l.rest[:i])
			l.rest = l.rest[i+1:]
			return w
		}
		if !allowed(c) {
			l.fail("bad byte in " + what)
			return ""
		}
	}
	l.err = incomplete(l.b)
	return ""
}

func (l *line) addr() string {
	return l.word(' ', "an address", func(c byte) bool {
		return isDigit(c) || c == ':' || c == '.' || (c|0x20 >= 'a' && c|0x20 <= 'f')
	})
}

func (l *line) port(end byte) uint16 {
	w := l.word(end, "a port", isDigit)
	if l.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(w, 10, 16)
	if err != nil {
		l.fail("bad port")
	}
	return uint16(n)
}

func (l *line) newline() {
	switch {
	case l.err != nil:
	case len(l.rest) == 0:
		l.err = incomplete(l.b)
	case l.rest[0] != '\n':
		l.fail("no line feed")
	default:
		l.rest = l.rest[1:]
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// The nibbles of a version 2 header.
const (
	v2Version    = 2
	cmdLocal     = 0
	cmdProxy     = 1
	famIPv4      = 1
	famIPv6      = 2
	transStream  = 1
	transDgram   = 2
	addrLenIPv4  = 12
	addrLenIPv6  = 36
	crcTLVLength = 7
)

func parseV2(b []byte) (Header, int, error) {
	verCmd, famTrans := b[12], b[13]
	if verCmd>>4 != v2Version {
		return Header{}, 0, fmt.Errorf("%w: version %d", ErrInvalid, verCmd>>4)
	}
	total := v2Fixed + int(binary.BigEndian.Uint16(b[14:]))
	if total > MaxHeader {
		return Header{}, 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, total)
	}
	if len(b) < total {
		return Header{}, 0, incomplete(b)
	}
	h := Header{Version: 2}
	if verCmd&0xf != cmdProxy || famTrans&0xf != transStream {
		return h, total, nil
	}
	body := b[v2Fixed:total]
	size, ip := 0, 0
	switch famTrans >> 4 {
	case famIPv4:
		size, ip = addrLenIPv4, 4
	case famIPv6:
		size, ip = addrLenIPv6, 16
	default:
		return h, total, nil
	}
	if len(body) < size {
		return Header{}, 0, fmt.Errorf("%w: %d bytes of addresses, want %d", ErrInvalid, len(body), size)
	}
	src, _ := netip.AddrFromSlice(body[:ip])
	dst, _ := netip.AddrFromSlice(body[ip : 2*ip])
	h.SrcAddr, h.DstAddr = src.String(), dst.String()
	h.SrcPort = binary.BigEndian.Uint16(body[2*ip:])
	h.DstPort = binary.BigEndian.Uint16(body[2*ip+2:])
	h.TLVs = body[size:]
	h.HasAddresses = true
	return h, total, nil
}
