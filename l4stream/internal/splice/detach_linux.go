// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"net"

	"golang.org/x/sys/unix"
)

// Detach takes the sockets of two plain connections out of Go's poller and
// closes the connections. False: one is not plain, or there are no descriptors;
// both stay as they are.
func Detach(client, upstream net.Conn) (c, u int, ok bool) {
	if c, ok = duplicate(client); !ok {
		return -1, -1, false
	}
	if u, ok = duplicate(upstream); !ok {
		_ = unix.Close(c)
		return -1, -1, false
	}
	_ = client.Close()
	_ = upstream.Close()
	return c, u, true
}

func duplicate(c net.Conn) (fd int, ok bool) {
	raw, ok := plain(c)
	if !ok {
		return -1, false
	}
	err := raw.Control(func(old uintptr) {
		var e error
		fd, e = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
		ok = e == nil
	})
	return fd, ok && err == nil
}
