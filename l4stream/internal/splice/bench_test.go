// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// runners are what is compared: a session, and what io.Copy makes of it (which
// on Linux splices too, with a pipe per direction that it keeps).
var runners = []struct {
	name string
	run  func(c, u net.Conn)
}{
	{"session", func(c, u net.Conn) { New(c, u, Config{Timeout: 10 * time.Minute}).Run() }},
	{"iocopy", func(c, u net.Conn) {
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(c, u); c.Close(); u.Close() })
		_, _ = io.Copy(u, c)
		c.Close()
		u.Close()
		wg.Wait()
	}},
}

// reportCPU reports the processor time of the whole process per operation:
// the peers' too, which is the same for all that are compared.
func reportCPU(b *testing.B, f func()) {
	before := cpuTime()
	f()
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

func BenchmarkPingPong(b *testing.B) {
	for _, r := range runners {
		b.Run(r.name, func(b *testing.B) {
			client, c := pair(b, "tcp")
			server, u := pair(b, "tcp")
			go r.run(c, u)
			go func() { // the server echoes
				msg := make([]byte, 64)
				for {
					if _, err := io.ReadFull(server, msg); err != nil {
						return
					}
					_, _ = server.Write(msg)
				}
			}()
			msg := make([]byte, 64)
			b.ReportAllocs()
			reportCPU(b, func() {
				for b.Loop() {
					_, _ = client.Write(msg)
					if _, err := io.ReadFull(client, msg); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkBulk(b *testing.B) {
	const chunk = 1 << 20
	for _, r := range runners {
		b.Run(r.name, func(b *testing.B) {
			client, c := pair(b, "tcp")
			server, u := pair(b, "tcp")
			go r.run(c, u)
			go func() {
				data := make([]byte, 128<<10)
				for {
					if _, err := server.Write(data); err != nil {
						return
					}
				}
			}()
			buf := make([]byte, 128<<10)
			b.SetBytes(chunk)
			b.ReportAllocs()
			reportCPU(b, func() {
				for b.Loop() {
					for got := 0; got < chunk; {
						n, err := client.Read(buf)
						if err != nil {
							b.Fatal(err)
						}
						got += n
					}
				}
			})
		})
	}
}

func BenchmarkSetupAndTeardown(b *testing.B) {
	for _, r := range runners {
		b.Run(r.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			open := func() (net.Conn, net.Conn) {
				d, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				a, err := l.Accept()
				if err != nil {
					b.Fatal(err)
				}
				return d, a
			}
			msg := make([]byte, 64)
			b.ReportAllocs()
			reportCPU(b, func() {
				for b.Loop() {
					client, c := open()
					server, u := open()
					done := make(chan struct{})
					go func() { r.run(c, u); close(done) }()
					_, _ = client.Write(msg)
					_, _ = io.ReadFull(server, msg)
					_ = client.(*net.TCPConn).SetLinger(0) // no TIME_WAIT
					client.Close()
					<-done
					server.Close()
				}
			})
		})
	}
}

// BenchmarkIdleMemory reports what an idle session costs beyond its two
// connections and their peers.
func BenchmarkIdleMemory(b *testing.B) {
	for _, r := range runners {
		b.Run(r.name, func(b *testing.B) {
			const n = 500
			memory := func() uint64 {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc + m.StackInuse
			}
			for b.Loop() {
				var conns [][4]net.Conn
				for range n {
					client, c := pair(b, "tcp")
					server, u := pair(b, "tcp")
					conns = append(conns, [4]net.Conn{client, c, server, u})
				}
				before := memory()
				for _, cs := range conns {
					go r.run(cs[1], cs[3])
				}
				for _, cs := range conns {
					send(b, cs[0], "ping")
					expect(b, cs[2], "ping")
				}
				b.ReportMetric(float64(memory()-before)/n, "B/session")
				for _, cs := range conns {
					for _, c := range cs {
						c.Close()
					}
				}
			}
		})
	}
}
