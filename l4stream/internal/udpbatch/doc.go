// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package udpbatch receives and sends UDP datagrams many at a time.
//
//	s, err := udpbatch.New(conn)
//	err = s.Serve(func(packets []udpbatch.Packet) bool { ... })
//
// On Linux one system call (recvmmsg, sendmmsg) moves up to [Batch] datagrams;
// on other systems it is one. Datagrams of 0 to 65,507 bytes come whole.
//
// # Memory
//
// A receiver needs room for the largest datagram in each place of a batch,
// which is too much to keep per socket when a session has one. So a socket that
// waits holds nothing: the room is borrowed from a pool when the socket is
// readable and given back when the function given to Receive returns. Pages of
// it that no datagram was ever large enough to reach are never touched. A socket
// with one peer gets a smaller room than one with many, whose datagrams are worth
// more the more of them come together. Data to
// be kept for later goes into a [Buffer] that is about as large as the datagram.
//
// # Local addresses
//
// A socket on a wildcard address asks the kernel to which address each datagram
// was sent. [Socket.Source] makes of it what a reply needs to leave from there;
// a client that has connected its socket drops replies from anywhere else.
//
// # Why not golang.org/x/net alone
//
// Its ReadBatch makes two allocations per datagram for the sender's address and
// wants buffers before it waits. It is used here for systems other than Linux.
package udpbatch
