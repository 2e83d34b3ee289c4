// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
)

func netPort(p uint16) string { return strconv.Itoa(int(p)) }

// BenchmarkForward compares reading a burst of datagrams and sending them on,
// what a proxy does, through this package and through package net.
func BenchmarkForward(b *testing.B) {
	const burst, size = Batch, 64
	setup := func(b *testing.B) (in *Socket, inc, outc *net.UDPConn, to netip.AddrPort, fill func(), drain func()) {
		in, inc = listen(b, "udp4", "127.0.0.1:0")
		_, outc = listen(b, "udp4", "127.0.0.1:0")
		sink, sinkc := listen(b, "udp4", "127.0.0.1:0")
		_ = sink
		source, _ := listen(b, "udp4", "127.0.0.1:0")
		to = sinkc.LocalAddr().(*net.UDPAddr).AddrPort()
		w := source.NewSender()
		data := make([]byte, size)
		fill = func() {
			for range burst {
				w.Add(data, inc.LocalAddr().(*net.UDPAddr).AddrPort(), nil)
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		drain = func() {
			for got := 0; got < burst; {
				if err := receive(sink, func(ps []Packet) { got += len(ps) }); err != nil {
					b.Fatal(err)
				}
			}
		}
		return
	}
	b.Run("batch", func(b *testing.B) {
		in, _, outc, to, fill, drain := setup(b)
		out, err := New(outc)
		if err != nil {
			b.Fatal(err)
		}
		w := out.NewSender()
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			fill()
			b.StartTimer()
			for got := 0; got < burst; {
				if err := receive(in, func(ps []Packet) {
					got += len(ps)
					for _, p := range ps {
						w.Add(p.Data, to, nil)
					}
					_ = w.Flush()
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			drain()
			b.StartTimer()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/datagram")
	})
	b.Run("net", func(b *testing.B) {
		_, inc, outc, to, fill, drain := setup(b)
		buf := make([]byte, MaxDatagram)
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			fill()
			b.StartTimer()
			for range burst {
				n, _, err := inc.ReadFromUDPAddrPort(buf)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = outc.WriteToUDPAddrPort(buf[:n], to)
			}
			b.StopTimer()
			drain()
			b.StartTimer()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/datagram")
	})
}
