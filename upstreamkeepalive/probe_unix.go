// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package upstreamkeepalive

import "golang.org/x/sys/unix"

// POLLHUP and POLLERR are always reported.
const readable = unix.POLLIN | unix.POLLPRI

// prober looks at many connections with one system call.
type prober struct{ fds []unix.PollFd }

// noisy calls f with the index of each of conns that is not silent. A
// connection may have been taken or closed meanwhile: f must find out.
func (p *prober) noisy(conns []watched, f func(i int)) {
	p.fds = p.fds[:0]
	for _, w := range conns {
		p.fds = append(p.fds, unix.PollFd{Fd: int32(w.c.fd), Events: readable})
	}
	if n, err := unix.Poll(p.fds, 0); n <= 0 || err != nil {
		return // EINTR: the next round will tell
	}
	for i := range p.fds {
		if p.fds[i].Revents != 0 {
			f(i)
		}
	}
}
