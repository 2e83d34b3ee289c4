// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package clienthello reads what a TLS client says before anything is
// encrypted, without taking part in the handshake: the server name, the
// application protocols and the protocol version of a ClientHello. It is what
// nginx calls ssl_preread.
//
// # Use
//
// A [Parser] is fed the bytes peeked from a connection so far, always from the
// first byte on, and says whether it needs more, has read a whole hello, or
// has met something else:
//
//	var p clienthello.Parser
//	for {
//		info, verdict := p.Feed(peeked)
//		if verdict != clienthello.NeedMore {
//			break // info is set for Decided and empty for NotTLS
//		}
//		peeked = readMore(peeked)
//	}
//
// The parser never decides for lack of bytes. How many bytes may be peeked
// (preread_buffer_size; more is status 400), for how long (preread_timeout)
// and what an early end of the connection means are the caller's rules.
//
// # Rules
//
// They are nginx's, as observed from outside:
//
//   - Five bytes are needed to say anything. A first byte of 0x16 and a second
//     of 3 begin a TLS record; the minor version may be anything.
//   - A record is looked at when all of it is there. A hello may be spread over
//     records at any byte, inside of any field. Another kind of record between
//     its parts makes it malformed.
//   - The version is that of the hello, or TLSv1.3 if there is a
//     supported_versions extension, whatever that lists. Versions that have no
//     name leave the protocol empty and the rest as it is.
//   - An SSLv2 style hello gives a version and no names, from five bytes.
//   - Only the first name of the first server_name extension counts and its
//     type must be 0. Its bytes are not checked or changed.
//   - Lengths inside of extensions are checked, the length of the block of
//     extensions is not: the end of the hello ends it.
//   - In a malformed hello nothing counts, not even what was read before the
//     fault; the connection goes on as if it were not TLS.
//
// # Bounds
//
// Every byte is looked at once, however the input is cut into pieces, and the
// parser holds at most the field it is in and the values it returns: never
// more than what was fed to it. The values are copies, so that the caller may
// reuse its buffer.
package clienthello
