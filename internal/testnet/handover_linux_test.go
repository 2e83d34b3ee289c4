// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"context"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTwoListenersAtOneAddressAreSeen(t *testing.T) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}); cerr != nil {
			return cerr
		}
		return err
	}}
	listen := func(addr string) net.Listener {
		ln, err := config.Listen(context.Background(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln
	}
	first := listen("127.0.0.1:0")
	addr := first.Addr().(*net.TCPAddr)
	check := func(when string, want bool) {
		t.Helper()
		if got, err := handedOver([]int{1, addr.Port}); got != want || err != nil {
			t.Errorf("%s: handedOver() = %v, %v, want %v", when, got, err, want)
		}
	}
	check("one listener", true)
	second := listen(addr.String())
	check("two listeners", false)
	// The kernel's tables come in pieces, in an order of their own.
	for range 200 {
		listen("127.0.0.1:0")
		check("two listeners among others", false)
	}
	if got, err := handedOver([]int{1}); !got || err != nil {
		t.Errorf("of another port: handedOver() = %v, %v, want true", got, err)
	}
	second.Close()
	check("one left", true)
	listen((&net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: addr.Port}).String())
	check("one at another address", true)
}
