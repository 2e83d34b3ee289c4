// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"net"
	"testing"
)

func TestListeningWaitsForAnAddressThatIsStillInUse(t *testing.T) {
	addr := loopback(FreeUDPPort(t))
	held, err := net.ListenPacket("udp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	err = whileInUse(func() error {
		if calls++; calls == 2 {
			held.Close()
		}
		c, err := net.ListenPacket("udp4", addr)
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil || calls < 2 {
		t.Errorf("%v after %d calls, want none after 2 or more", err, calls)
	}
	if err := whileInUse(func() error { return net.ErrClosed }); err != net.ErrClosed {
		t.Errorf("another error becomes %v", err)
	}
}
