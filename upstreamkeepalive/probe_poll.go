// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !(linux && (amd64 || arm64))

package upstreamkeepalive

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// silent reports that the server has neither sent anything nor closed c.
func (c *conn) silent() bool {
	if c.fd < 0 {
		return true
	}
	p := [1]unix.PollFd{{Fd: int32(c.fd), Events: readable}}
	for {
		n, err := unix.Poll(p[:], 0)
		if err == unix.EINTR {
			continue
		}
		return n == 0 && err == nil
	}
}

// receive reads what is there: sockets do not block.
func receive(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }
