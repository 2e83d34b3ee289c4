// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Datagrams of one size to one place are sent together, and come apart as
// they were; so do they where the kernel cannot do that.
func TestDatagramsSentTogetherComeAsTheyWere(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("one by one %t", whole), func(t *testing.T) {
			sender, _ := listen(t, "udp4", "127.0.0.1:0")
			sender.sys.whole.Store(whole)
			_, a := listen(t, "udp4", "127.0.0.1:0")
			_, b := listen(t, "udp4", "127.0.0.1:0")
			w := sender.NewSender()
			want := map[*net.UDPConn][]int{}
			for i, d := range []struct {
				to   *net.UDPConn
				size int
			}{{a, 100}, {a, 100}, {a, 100}, {a, 40}, {a, 100}, {b, 100}, {b, 100}, {a, 0}, {a, 0}, {b, 1400}, {b, 1400}, {b, 7}, {b, 7}} {
				w.Add(bytes.Repeat([]byte{byte(i)}, d.size), d.to.LocalAddr().(*net.UDPAddr).AddrPort(), nil)
				want[d.to] = append(want[d.to], d.size)
			}
			w.build(0)
			if n := map[bool]int{false: 8, true: 13}[whole]; w.msgs != n {
				t.Errorf("%d messages, want %d", w.msgs, n)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			for conn, sizes := range want {
				var got []int
				for range sizes {
					got = append(got, size(t, conn))
				}
				if !slices.Equal(got, sizes) {
					t.Errorf("sizes %v, want %v", got, sizes)
				}
			}
		})
	}
}

// size reads a datagram whose bytes are all the same.
func size(t *testing.T, conn *net.UDPConn) int {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 2000)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if n > 0 && bytes.Count(buf[:n], buf[:1]) != n {
		t.Errorf("%d bytes are of several datagrams", n)
	}
	return n
}

func TestASocketThatCannotSendSegmentsSendsOneByOne(t *testing.T) {
	if !cannotSegment(22) || cannotSegment(111) {
		t.Error("EINVAL may mean that there are no segments, ECONNREFUSED does not")
	}
	sender, _ := listen(t, "udp6", "[::1]:0")
	w := sender.NewSender()
	to := netip.MustParseAddrPort("127.0.0.1:9") // not for a socket of IPv6 alone
	for range 3 {
		w.Add([]byte("x"), to, nil)
	}
	if err := w.Flush(); err == nil {
		t.Error("Flush() = nil, want an error of each datagram")
	}
	if w.Len() != 0 {
		t.Error("the batch is not empty")
	}
}

// A message has 64 segments at most, and not more bytes than UDP allows.
func TestAFullBatchOfAnySizeIsSentTogether(t *testing.T) {
	for _, c := range []struct{ size, messages int }{{1, 1}, {64, 1}, {1022, 1}, {1024, 2}, {maxSegment, 2}, {maxSegment + 1, Batch}} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			sender, _ := listen(t, "udp4", "127.0.0.1:0")
			_, to := listen(t, "udp4", "127.0.0.1:0")
			w := sender.NewSender()
			for i := range Batch {
				w.Add(bytes.Repeat([]byte{byte(i)}, c.size), to.LocalAddr().(*net.UDPAddr).AddrPort(), nil)
			}
			w.build(0)
			if w.msgs != c.messages {
				t.Errorf("%d messages, want %d", w.msgs, c.messages)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if sender.sys.whole.Load() {
				t.Error("the kernel did not take the segments")
			}
			for range Batch {
				if n := size(t, to); n != c.size {
					t.Errorf("a datagram of %d bytes has come, want %d", n, c.size)
				}
			}
		})
	}
}
