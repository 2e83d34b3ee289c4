// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// reserve binds a port, any for 0, without listening on it. With SO_REUSEADDR on
// both sides Linux lets a server listen there all the same, and refuses everyone
// who connects meanwhile.
func reserve(which int) (port int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	release = sync.OnceFunc(func() { syscall.Close(fd) })
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: which, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		release()
		return 0, nil, os.NewSyscallError("bind", err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		release()
		return 0, nil, os.NewSyscallError("getsockname", err)
	}
	return sa.(*syscall.SockaddrInet4).Port, release, nil
}

// lockUDPPort keeps other processes from choosing the port.
func lockUDPPort(port int) (release func(), ok bool) {
	ln, err := net.Listen("unix", fmt.Sprintf("@testnet-udp-%d", port))
	if err != nil {
		return nil, false
	}
	return func() { ln.Close() }, true
}
