// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package upstreamkeepalive

import (
	"syscall"
	"unsafe"
)

// silent reports that the server has neither sent anything nor closed c. The
// call cannot block, so the scheduler need not know of it.
func (c *conn) silent() bool {
	if c.fd < 0 {
		return true
	}
	var b [1]byte
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(c.fd),
		uintptr(unsafe.Pointer(&b[0])), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return errno == syscall.EAGAIN
}

// receive reads what is there. Like silent, it cannot block.
func receive(fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd,
		uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
