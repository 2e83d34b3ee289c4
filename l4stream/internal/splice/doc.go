// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package splice moves the bytes of a TCP session between its client and its
// upstream server until the session ends.
//
//	s := splice.New(client, upstream, splice.Config{
//		Timeout: 10 * time.Minute,
//		Preread: peeked,
//	})
//	reason := s.Run() // closes both connections
//
// # How bytes move
//
// On Linux, between plain TCP and unix stream sockets, they stay in the kernel:
// splice(2) moves them from one socket to the other through a pipe. A
// direction that waits for its source holds no pipe, it borrows one when there
// is something to move and gives it back when all of it has been written. So an
// idle session costs its two sockets and nothing else. The kernel wants a pipe
// per direction only while bytes are in it: when the receiver does not take
// them.
//
// A Session waits in Go's network poller, through syscall.RawConn. A direction
// tries first and waits when there is nothing, so that a message costs three
// system calls: in, out, and the look that finds nothing. The last is needed:
// the poller is edge triggered, and the end of the stream may have come with
// the last bytes.
//
// Where an end is TLS, or the system is another, bytes are copied. A buffer is
// taken from a pool when there is something to read, where that can be known
// (a plain source on Linux); else a direction waits with a buffer of 512 bytes
// and uses a large one only while reads fill it.
//
// # Rules
//
// They are nginx's:
//
//   - Timeout runs from the last read or write on either side. There is one
//     clock per session, a timer that compares with the time of the last
//     activity when it fires: no deadline is moved while bytes flow. It stands
//     still while a rate limit delays a direction.
//   - Without HalfClose the session ends when one side has sent its end and
//     everything it sent has been written. What still comes from the other is
//     dropped. With it the end of one side becomes the end of writing towards
//     the other, and the session ends when both have ended. An error while
//     reading counts as the end; an error while writing ends the session.
//   - A rate r allows r*(seconds since the start, begun ones included) bytes in
//     all. When none are allowed the direction waits for as long as the excess
//     takes; after reading n bytes it waits n/r seconds before it reads again.
//
// # Goroutines
//
// A Session has two: the caller of Run moves from client to upstream, one more
// the other way, and Run returns when both are done.
//
// A [Relay] has none. On Linux it moves the same bytes by the same rules, between
// plain sockets without a rate, when an event loop says that they are ready
// (package evloop). A small message then costs a share of an epoll_wait, and two
// splices: a read that leaves room in the pipe has emptied the socket, and what
// comes after it, its end too, is another event. An idle relay is its memory, a
// fifth of what the stacks of two goroutines take.
package splice
