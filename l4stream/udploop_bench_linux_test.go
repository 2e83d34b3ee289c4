// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/udpbatch"
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
	for _, c := range []struct{ clients, each int }{{1, 1}, {1, 3}, {1, 8}, {2, 8}, {8, 1}, {8, 8}} {
		b.Run(fmt.Sprintf("clients=%d/each=%d", c.clients, c.each), func(b *testing.B) { benchmarkUDPTurn(b, c.clients, c.each) })
	}
}

// rawUDP is a socket that blocks; it is connected, or has an address.
func rawUDP(b *testing.B, to *netip.AddrPort) (int, netip.AddrPort) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(fd) })
	if to != nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	} else {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		b.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		b.Fatal(err)
	}
	local := name.(*unix.SockaddrInet4)
	return fd, netip.AddrPortFrom(netip.AddrFrom4(local.Addr), uint16(local.Port))
}

func benchmarkUDPTurn(b *testing.B, clients, each int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Sockets that nobody waits for, for their waking would be counted, too.
	server, address := rawUDP(b, nil)
	s := relayUDP(b, net.UDPAddrFromAddrPort(address))
	reader := s.udp.reader.(*udpOnLoop)
	data := make([]byte, 64)
	buf := make([]byte, 100)
	answers := make([]unix.Sockaddr, clients*each)
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	var fds []int
	for range clients {
		fd, _ := rawUDP(b, &s.udp.local.Addr)
		fds = append(fds, fd)
	}
	send := func(n int) {
		for range n { // in turn, as clients do that know nothing of each other
			for _, fd := range fds {
				_, err := unix.Write(fd, data)
				must(err)
			}
		}
	}
	receive := func(n int) {
		for _, fd := range fds {
			for range n {
				_, err := unix.Read(fd, buf)
				must(err)
			}
		}
	}
	atServer := func(n int) {
		for i := range n {
			var err error
			_, answers[i], err = unix.Recvfrom(server, buf, 0)
			must(err)
		}
		for _, a := range answers[:n] {
			must(unix.Sendto(server, data, 0, a))
		}
	}
	send(1)
	atServer(clients)
	receive(1)
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
		send(each)
		began := threadCPU(b)
		for range (clients*each + udpbatch.Batch - 1) / udpbatch.Batch {
			reader.Ready(0)
		}
		toServer := threadCPU(b) - began
		atServer(clients * each)
		began = threadCPU(b)
		for _, u := range s.udp.sessions {
			u.Ready(0)
		}
		spent = append(spent, toServer+threadCPU(b)-began)
		receive(each)
	}
	slices.Sort(spent)
	b.ReportMetric(float64(spent[len(spent)/2])/float64(clients*each), "cpu-ns/datagram")
}
