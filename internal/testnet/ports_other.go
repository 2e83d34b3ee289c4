// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testnet

import "net"

func reserve(which int) (port int, release func(), err error) {
	ln, err := net.Listen("tcp4", loopback(which))
	if err != nil {
		return 0, nil, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, func() {}, nil
}

// lockUDPPort does not know of other processes.
func lockUDPPort(int) (release func(), ok bool) { return func() {}, true }
