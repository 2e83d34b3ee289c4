// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package proxyproto reads and writes the PROXY protocol, versions 1 and 2, by
// nginx's rules and to the byte as nginx writes it.
//
// # Reading
//
// [Parse] looks at the bytes at the start of a connection (at most
// [MaxHeader], peeked) and returns the [Header] and its length. The addresses
// stay text: version 1 keeps the client's spelling, version 2 is printed in
// the usual form. A header that names no addresses (UNKNOWN, LOCAL, another
// family or transport) is accepted and has none. TLVs are read by name with
// [Header.TLV], names are checked once, with [ParseTLVName].
//
// nginx looks once: a header that is not completely there when the first bytes
// are is an error, as a broken one. [ErrIncomplete] tells the two apart, for
// callers that would rather wait.
//
// # Writing
//
// [AppendV1] and [AppendV2] put the header for a session in front of its data.
// Version 1 prints the local address as it is, of whatever family, also a unix
// path. Version 2 writes both addresses in one family, LOCAL if either is a
// unix socket, and ends with a CRC-32C of itself.
//
// # Why not github.com/pires/go-proxyproto
//
// It is a good library with stricter rules than these, and they are not
// options. Its version 1 wants TCP4 to hold IPv4 addresses, both of one family,
// at most 107 bytes, and keeps no spelling. Its writer refuses a client of one
// family with a server of another (nginx prints `PROXY TCP4 192.0.2.1 ::1 ...`),
// has no text for a unix path, and leaves computing the CRC-32C to the caller.
// It reads from a bufio.Reader, where a session here has peeked bytes that
// other phases still need.
package proxyproto
