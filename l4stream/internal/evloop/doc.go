// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package evloop waits for many sockets in few goroutines. It exists on Linux
// only; elsewhere the package is empty.
//
//	loop, err := evloop.Acquire()
//	token, err := loop.Add(fd, evloop.Edge, handler) // handler.Ready(events)
//	...
//	loop.Remove(token)
//	loop.Release()
//
// # Why not Go's poller
//
// Go's poller wakes a goroutine for each socket that is ready: the goroutine is
// put into a queue, a thread is found for it, and threads that find nothing look
// for work of others before they sleep. For a proxy's small message that is more
// than the two system calls that move it. Here one goroutine blocks in
// epoll_wait and calls a handler for each socket that is ready, as nginx's
// workers do.
//
// # Rules
//
//   - A handler is called on the goroutine of its loop and must not block. All
//     that is of one session belongs to one loop, so that handlers need no locks.
//   - What comes from elsewhere is given to [Loop.Post].
//   - A descriptor is in no other poller: Go's would be woken for nothing.
//   - A loop exists while somebody holds it: [Acquire] starts loops and the last
//     [Loop.Release] ends them.
//
// # The scheduler
//
// To Go's scheduler the goroutine is one that is in system calls nearly all the
// time and never yields. The scheduler's monitor takes the processor away from
// such a goroutine every 10 ms, starts a thread for that processor, and looks at
// it every 20 µs for a while; without a remedy this costs a third of what a
// small message does. So a loop yields by itself every few milliseconds. There
// is one loop less than there are processors, one at least: with one processor
// left, the monitor lets the others keep theirs in short system calls.
//
// # Rests
//
// A proxy that reacts at once to each datagram of a burst handles them one by one.
// Handlers that call [Loop.Gather] let a loop that is woken more than 4,000
// times a second rest for 30 µs after each turn, so that more is there in the
// next. It costs a fifth less processor time for each datagram, and no throughput.
// Whoever does not call it, as connections of TCP, ends the rests while there is
// something to do for it.
package evloop
