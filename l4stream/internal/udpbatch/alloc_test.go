// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && !race

package udpbatch

import (
	"net"
	"testing"
)

func TestReceivingAndSendingDoNotAllocate(t *testing.T) {
	s, c := listen(t, "udp", "[::]:0")
	to := c.LocalAddr().(*net.UDPAddr).AddrPort()
	client := dial(t, net.JoinHostPort("127.0.0.1", netPort(to.Port())))
	w := s.NewSender()
	data, answer := []byte("question"), make([]byte, 64)
	src := s.Source(client.RemoteAddr().(*net.UDPAddr).AddrPort().Addr())
	handle := func(ps []Packet) bool {
		b := Keep(ps[0].Data)
		w.Add(b.Bytes(), ps[0].From, src)
		_ = w.Flush()
		b.Release()
		return false
	}
	n := testing.AllocsPerRun(200, func() {
		_, _ = client.Write(data)
		if err := s.Serve(handle); err != nil {
			t.Fatal(err)
		}
		_, _ = client.Read(answer)
	})
	if n >= 1 {
		t.Errorf("%v allocations for a datagram and its answer, want 0", n)
	}
}
