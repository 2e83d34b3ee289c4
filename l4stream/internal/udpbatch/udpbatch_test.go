// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

func listen(t testing.TB, network, addr string) (*Socket, *net.UDPConn) {
	t.Helper()
	a, err := net.ResolveUDPAddr(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP(network, a)
	if err != nil {
		if a.IP.To4() == nil {
			testnet.Missing(t, fmt.Sprintf("no IPv6 here: %v", err))
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	_ = c.SetDeadline(time.Now().Add(patience))
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func dial(t testing.TB, addr string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.UDPConn)
}

// receive waits for one batch.
func receive(s *Socket, handle func([]Packet)) error {
	return s.Serve(func(packets []Packet) bool {
		handle(packets)
		return false
	})
}

// echo answers n datagrams from where they were sent to.
func echo(t testing.TB, s *Socket, n int) {
	w := s.NewSender()
	for n > 0 {
		err := receive(s, func(packets []Packet) {
			for _, p := range packets {
				if !w.Add(p.Data, p.From, s.Source(p.Local)) {
					t.Error("the sender is full before a batch is")
				}
			}
			n -= len(packets)
			if err := w.Flush(); err != nil {
				t.Errorf("Flush() = %v", err)
			}
		})
		if err != nil {
			t.Errorf("Serve() = %v", err)
			return
		}
	}
}

func TestDatagramsOfEverySizeComeWholeBothWays(t *testing.T) {
	s, c := listen(t, "udp4", "127.0.0.1:0")
	client := dial(t, c.LocalAddr().String())
	sizes := []int{0, 1, 2, 255, 256, 257, 1472, 1473, 9000, 32768, 65506, 65507}
	done := make(chan struct{})
	go func() { defer close(done); echo(t, s, len(sizes)) }()
	got := make([]byte, MaxDatagram)
	for _, size := range sizes {
		sent := bytes.Repeat([]byte{byte(size), byte(size >> 8), 7}, size/3+1)[:size]
		if _, err := client.Write(sent); err != nil {
			t.Fatal(err)
		}
		n, err := client.Read(got)
		if err != nil || !bytes.Equal(got[:n], sent) {
			t.Fatalf("%d bytes came back as %d bytes, %v", size, n, err)
		}
	}
	<-done
}

func TestManyDatagramsComeInOrderOfTheirSender(t *testing.T) {
	s, c := listen(t, "udp4", "127.0.0.1:0")
	const n, clients = 200, 3
	var conns [clients]*net.UDPConn
	next := map[netip.AddrPort]int{}
	for i := range conns {
		conns[i] = dial(t, c.LocalAddr().String())
		next[conns[i].LocalAddr().(*net.UDPAddr).AddrPort()] = 0
	}
	for i := range n {
		for _, c := range conns {
			if _, err := fmt.Fprint(c, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls := 0
	for got := 0; got < n*clients; {
		err := receive(s, func(packets []Packet) {
			calls++
			got += len(packets)
			for _, p := range packets {
				if want, ok := next[p.From]; !ok || string(p.Data) != fmt.Sprint(want) {
					t.Fatalf("%q from %v, want %d", p.Data, p.From, want)
				}
				next[p.From]++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS == "linux" && calls > n*clients/Batch+1 {
		t.Errorf("%d batches for %d datagrams that were there, want %d", calls, n*clients, n*clients/Batch)
	}
}

func TestRepliesLeaveFromTheAddressTheClientUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		testnet.Missing(t, "needs all of 127.0.0.0/8")
	}
	for _, c := range []struct{ network, listen, client string }{
		{"udp4", "0.0.0.0:0", "127.0.0.2"},
		{"udp", "[::]:0", "127.0.0.3"}, // one socket for both families
		{"udp", "[::]:0", "::1"},
		{"udp6", "[::]:0", "::1"},
	} {
		t.Run(c.listen+" "+c.client, func(t *testing.T) {
			s, conn := listen(t, c.network, c.listen)
			port := conn.LocalAddr().(*net.UDPAddr).Port
			// A connected socket takes answers from that address only.
			client := dial(t, net.JoinHostPort(c.client, fmt.Sprint(port)))
			done := make(chan struct{})
			go func() { defer close(done); echo(t, s, 1) }()
			if _, err := client.Write([]byte("hi")); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 10)
			if n, err := client.Read(b); err != nil || string(b[:n]) != "hi" {
				t.Errorf("answer %q, %v, want hi", b[:n], err)
			}
			<-done
		})
	}
}

func TestASenderIsKnownWithoutItsMapping(t *testing.T) {
	s, conn := listen(t, "udp", "[::]:0")
	client := dial(t, fmt.Sprintf("127.0.0.1:%d", conn.LocalAddr().(*net.UDPAddr).Port))
	_, _ = client.Write([]byte("x"))
	if err := receive(s, func(ps []Packet) {
		if want := client.LocalAddr().(*net.UDPAddr).AddrPort(); ps[0].From != want || ps[0].Local != want.Addr() {
			t.Errorf("from %v to %v, want %v to %v", ps[0].From, ps[0].Local, want, want.Addr())
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func TestASocketOnOneAddressHasNoLocal(t *testing.T) {
	s, conn := listen(t, "udp4", "127.0.0.1:0")
	client := dial(t, conn.LocalAddr().String())
	_, _ = client.Write([]byte("x"))
	if err := receive(s, func(ps []Packet) {
		if ps[0].Local.IsValid() || s.Source(ps[0].Local) != nil {
			t.Errorf("local %v, want none", ps[0].Local)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func TestARefusedPortIsAnErrorOfServeAndTheSocketGoesOn(t *testing.T) {
	if runtime.GOOS != "linux" {
		testnet.Missing(t, "only there are refusals certain")
	}
	_, gone := listen(t, "udp4", "127.0.0.1:0")
	addr := gone.LocalAddr().String()
	gone.Close()
	client := dial(t, addr)
	s, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	w := s.NewSender()
	w.Add([]byte("x"), netip.AddrPort{}, nil)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	fail := func([]Packet) { t.Error("a datagram from nobody") }
	if err := receive(s, fail); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("Serve() = %v, want %v", err, syscall.ECONNREFUSED)
	}
	back, _ := listen(t, "udp4", addr)
	done := make(chan struct{})
	go func() { defer close(done); echo(t, back, 1) }()
	w.Add([]byte("again"), netip.AddrPort{}, nil)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := receive(s, func(ps []Packet) {
		if string(ps[0].Data) != "again" {
			t.Errorf("received %q, want again", ps[0].Data)
		}
	}); err != nil {
		t.Errorf("Serve() after the refusal = %v", err)
	}
	<-done
}

func TestADatagramThatCannotBeSentDoesNotHoldBackTheOthers(t *testing.T) {
	s, _ := listen(t, "udp4", "127.0.0.1:0")
	peer, pc := listen(t, "udp4", "127.0.0.1:0")
	to := pc.LocalAddr().(*net.UDPAddr).AddrPort()
	w := s.NewSender()
	w.Add([]byte("one"), to, nil)
	w.Add(make([]byte, MaxDatagram), to, nil) // larger than UDP allows
	w.Add([]byte("two"), to, nil)
	if err := w.Flush(); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("Flush() = %v, want %v", err, syscall.EMSGSIZE)
	}
	var got []string
	for len(got) < 2 {
		if err := receive(peer, func(ps []Packet) {
			for _, p := range ps {
				got = append(got, string(p.Data))
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] != "one" || got[1] != "two" {
		t.Errorf("received %q, want one, two", got)
	}
	if w.Len() != 0 || w.Flush() != nil {
		t.Error("the sender is not empty after a flush")
	}
}

func TestAFullBatchTakesNoMore(t *testing.T) {
	s, _ := listen(t, "udp4", "127.0.0.1:0")
	w := s.NewSender()
	for i := range Batch {
		if !w.Add([]byte("x"), netip.AddrPort{}, nil) {
			t.Fatalf("full after %d", i)
		}
	}
	if w.Add([]byte("x"), netip.AddrPort{}, nil) {
		t.Error("more than a batch was taken")
	}
}

func TestServeGoesOnFromBatchToBatch(t *testing.T) {
	s, c := listen(t, "udp4", "127.0.0.1:0")
	client := dial(t, c.LocalAddr().String())
	const n, burst = 300, 2*Batch + 3
	done := make(chan error, 1)
	come := make(chan int, n)
	go func() {
		got := 0
		done <- s.Serve(func(packets []Packet) bool {
			for _, p := range packets {
				if string(p.Data) != fmt.Sprint(got) {
					t.Errorf("%q came as number %d", p.Data, got)
				}
				come <- got
				got++
			}
			return got < n
		})
	}()
	// In bursts that do not fit a batch, and alone, after it has waited.
	for sent := 0; sent < n; {
		for range min(n-sent, 1+sent%burst) {
			if _, err := fmt.Fprint(client, sent); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		for last := -1; last < sent-1; {
			select {
			case last = <-come:
			case <-time.After(patience):
				t.Fatalf("nothing comes after number %d of %d sent", last, sent)
			}
		}
	}
	if err := <-done; err != nil {
		t.Errorf("Serve() = %v, want nil", err)
	}
}

func TestCloseEndsServe(t *testing.T) {
	s, c := listen(t, "udp4", "127.0.0.1:0")
	done := make(chan error, 1)
	go func() { done <- receive(s, func([]Packet) {}) }()
	c.Close()
	select {
	case err := <-done:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve() = %v, want %v", err, net.ErrClosed)
		}
	case <-time.After(patience):
		t.Error("Serve goes on")
	}
}

func TestBuffersAreAboutAsLargeAsWhatTheyHold(t *testing.T) {
	for _, c := range []struct{ size, room int }{{0, 256}, {256, 256}, {257, 2048}, {2049, 9216}, {65507, MaxDatagram}} {
		data := bytes.Repeat([]byte{9}, c.size)
		b := Keep(data)
		if !bytes.Equal(b.Bytes(), data) || cap(b.Bytes()) != c.room {
			t.Errorf("%d bytes are kept as %d in %d, want in %d", c.size, len(b.Bytes()), cap(b.Bytes()), c.room)
		}
		b.Release()
	}
}

func TestABroadcastIsAnsweredFromAnAddressOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		testnet.Missing(t, "needs the broadcast address of 127.0.0.0/8")
	}
	s, conn := listen(t, "udp4", "0.0.0.0:0")
	_, client := listen(t, "udp4", "127.0.0.1:0")
	to := netip.AddrPortFrom(netip.MustParseAddr("127.255.255.255"), conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	if _, err := client.WriteToUDPAddrPort([]byte("x"), to); err != nil {
		t.Fatal(err)
	}
	if err := receive(s, func(ps []Packet) {
		if want := netip.MustParseAddr("127.0.0.1"); ps[0].Local != want {
			t.Errorf("local %v, want %v", ps[0].Local, want)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// The room for a batch goes from socket to socket, and the kernel writes the
// lengths of addresses into it.
func TestSendersAreKnownOnSocketsOfBothFamiliesInTurn(t *testing.T) {
	v4, c4 := listen(t, "udp4", "127.0.0.1:0")
	v6, c6 := listen(t, "udp6", "[::1]:0")
	for round := range 20 {
		for _, side := range []struct {
			s *Socket
			c *net.UDPConn
		}{{v4, c4}, {v6, c6}} {
			client := dial(t, side.c.LocalAddr().String())
			want := client.LocalAddr().(*net.UDPAddr).AddrPort()
			n := 1 + round%5
			for range n {
				_, _ = client.Write([]byte("x"))
			}
			for n > 0 {
				if err := receive(side.s, func(ps []Packet) {
					n -= len(ps)
					for _, p := range ps {
						if p.From != want {
							t.Errorf("from %v, want %v", p.From, want)
						}
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			connected, err := New(client)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = side.c.WriteToUDPAddrPort([]byte("answer"), want)
			if err := receive(connected, func(ps []Packet) {
				if p := ps[0]; string(p.Data) != "answer" || p.From.IsValid() || p.Local.IsValid() {
					t.Errorf("%q from %v to %v, want an answer without addresses", p.Data, p.From, p.Local)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
