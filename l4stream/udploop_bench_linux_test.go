// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// threadCPU is the processor time of this thread in nanoseconds.
func threadCPU(b *testing.B) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}

// BenchmarkUDPTurn is what a loop does when datagrams of some clients are there,
// and then the answers to them, without its waiting. Its figure is processor
// time, for a datagram there and back; the median, as others' work in between
// costs time afterwards.
func BenchmarkUDPTurn(b *testing.B) {
	for _, c := range []struct{ clients, each int }{{1, 1}, {1, 3}, {1, 8}, {2, 8}, {8, 1}} {
		b.Run(fmt.Sprintf("clients=%d/each=%d", c.clients, c.each), func(b *testing.B) { benchmarkUDPTurn(b, c.clients, c.each) })
	}
}

func benchmarkUDPTurn(b *testing.B, clients, each int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	server := udpBackend(b)
	s := relayUDP(b, server.LocalAddr())
	reader := s.udp.reader.(*udpOnLoop)
	data := make([]byte, 64)
	buf := make([]byte, 100)
	answers := make([]netip.AddrPort, clients*each)
	var send, receive []func() error
	for range clients {
		c := dialUDP(b, s.udp.local.Addr.String())
		send = append(send, func() error { _, err := c.Write(data); return err })
		receive = append(receive, func() error { _, err := c.Read(buf); return err })
	}
	all := func(fs []func() error, n int) {
		for _, f := range fs {
			for range n {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	atServer := func(n int) {
		for i := range n {
			var err error
			if _, answers[i], err = server.ReadFromUDPAddrPort(buf); err != nil {
				b.Fatal(err)
			}
		}
		for _, a := range answers[:n] {
			if _, err := server.WriteToUDPAddrPort(data, a); err != nil {
				b.Fatal(err)
			}
		}
	}
	all(send, 1)
	atServer(clients)
	all(receive, 1)
	// From here on this goroutine does what the loop has done.
	left := make(chan struct{})
	reader.loop.Post(func() {
		reader.loop.Drop(reader.fd, reader.token)
		for _, u := range s.udp.sessions {
			u.loop.Drop(u.loop.fd, u.loop.token)
		}
		close(left)
	})
	<-left
	spent := make([]int64, 0, 1<<16)
	for b.Loop() {
		all(send, each)
		began := threadCPU(b)
		for range (clients*each + 15) / 16 {
			reader.Ready(0)
		}
		toServer := threadCPU(b) - began
		atServer(clients * each)
		began = threadCPU(b)
		for _, u := range s.udp.sessions {
			u.Ready(0)
		}
		spent = append(spent, toServer+threadCPU(b)-began)
		all(receive, each)
	}
	slices.Sort(spent)
	b.ReportMetric(float64(spent[len(spent)/2])/float64(clients*each), "cpu-ns/datagram")
}
