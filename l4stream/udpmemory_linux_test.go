// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package l4stream

import (
	"runtime"
	"testing"
)

func heap() uint64 {
	var m runtime.MemStats
	for range 4 { // two empty a pool, once what was borrowed is given back
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The room for sending is shared by all sessions: it is larger than all that
// is one session's.
func TestASilentUDPSessionHoldsNoRoomForDatagrams(t *testing.T) {
	server := udpBackend(t)
	address := relayUDP(t, server.LocalAddr()).udp.local.Addr.String()
	buf := make([]byte, 100)
	visit := func(n int) {
		for range n {
			c := dialUDP(t, address)
			for range 3 {
				_, _ = c.Write([]byte("question"))
				n, from, err := server.ReadFrom(buf)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = server.WriteTo(buf[:n], from)
				if _, err := c.Read(buf); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	visit(20)
	before := heap()
	const sessions = 500
	visit(sessions)
	after := heap()
	if each := (int64(after) - int64(before)) / sessions; each > 6<<10 {
		t.Errorf("%d bytes for a session, want 6 KiB at most", each)
	} else {
		t.Logf("%d bytes for a session and its client", each)
	}
}
