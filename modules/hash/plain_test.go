// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

var t0 = peertest.Start

func equal(n int) (servers []peer.Server) {
	for i := range n {
		servers = append(servers, peer.Server{ID: string(rune('A' + i)), Line: fmt.Sprintf("127.0.0.1:%d", 18081+i)})
	}
	return servers
}

func weighted(weights ...int) []peer.Server {
	servers := equal(len(weights))
	for i, w := range weights {
		servers[i].Weight = w
	}
	return servers
}

func down(servers []peer.Server, i int) []peer.Server {
	servers[i].Down = true
	return servers
}

// numbers picks for the keys "1" to "20".
func numbers(t *testing.T, m peer.Method, servers []peer.Server) string {
	g := peertest.Group(t, peer.Config{Method: m, Servers: servers}, peer.Options{})
	var b strings.Builder
	for i := range 20 {
		b.WriteString(peertest.Get(g, peer.SessionOptions{Key: fmt.Sprint(i + 1)}, t0))
	}
	return b.String()
}

func TestKeysOneToTwentyReachTheServersThatNginxPicks(t *testing.T) {
	for _, c := range []struct {
		name    string
		method  peer.Method
		servers []peer.Server
		want    string
	}{
		{"three", Plain{}, equal(3), "BCBABAACCACACCBCABBC"},
		{"weights 2,3,1", Plain{}, weighted(2, 3, 1), "BCBAAABBCBBBBBABBBAB"},
		{"B down", Plain{}, down(equal(3), 1), "ACAACAACCACACCACACAC"},
		{"consistent, three", Consistent{}, equal(3), "CAABACABBAAACBAACBCB"},
		{"consistent, weights 2,3,1", Consistent{}, weighted(2, 3, 1), "BBABBCAABAAAABBBCBAB"},
		{"consistent, B down", Consistent{}, down(equal(3), 1), "CAAAACACAAAACCAACACC"},
	} {
		if got := numbers(t, c.method, c.servers); got != c.want {
			t.Errorf("%s: picks = %s, want %s", c.name, got, c.want)
		}
	}
}

func TestDrawsAreSummedAsInTheTable(t *testing.T) {
	for _, c := range []struct {
		key  string
		crc  uint32
		sums []uint32
	}{
		{"foo", 0x8c736521, []uint32{3187, 10068, 12200}},
		{"1", 0x83dcefb7, []uint32{988, 23094, 55213}},
		{"127.0.0.1", 0xd7b7e7a8, []uint32{22455, 44220, 60142}},
	} {
		if got := checksum(0, c.key); got != c.crc {
			t.Errorf("checksum(0, %q) = %08x, want %08x", c.key, got, c.crc)
		}
		var sum uint32
		for i, want := range c.sums {
			if sum += checksum(uint64(i), c.key) >> 16 & 0x7fff; sum != want {
				t.Errorf("%q: sum after draw %d = %d, want %d", c.key, i+1, sum, want)
			}
		}
	}
	if got, want := checksum(1234567, "k"), crc32.ChecksumIEEE([]byte("1234567k")); got != want {
		t.Errorf("checksum(1234567) = %08x, want %08x", got, want)
	}
}

// TestAKeyWaitsForASlowStartAndThenStays: a server that starts slowly takes its
// keys one after the other and keeps those that it has taken.
func TestAKeyWaitsForASlowStartAndThenStays(t *testing.T) {
	for _, m := range []peer.Method{Plain{}, Consistent{}} {
		servers := equal(4)
		servers[3].SlowStart = 100 * time.Second
		servers[3].Down = true
		g := peertest.Group(t, peer.Config{Method: m, Servers: servers}, peer.Options{})
		servers[3].Down = false
		peertest.Apply(t, g, peer.Config{Method: m, Servers: servers}, t0)
		had := map[string]bool{}
		counts := []int{}
		for _, after := range []time.Duration{10, 50, 100} {
			n := 0
			for i := range 2000 {
				key := fmt.Sprint("key", i)
				if peertest.Get(g, peer.SessionOptions{Key: key}, t0.Add(after*time.Second)) == "D" {
					had[key] = true
					n++
				} else if had[key] {
					t.Errorf("%T: %q left D during its slow start", m, key)
				}
			}
			counts = append(counts, n)
		}
		all := float64(counts[2])
		if part := float64(counts[0]) / all; part < .05 || part > .15 {
			t.Errorf("%T: after 10 %% of its slow start D has %.2f of its keys", m, part)
		}
		if part := float64(counts[1]) / all; part < .4 || part > .6 {
			t.Errorf("%T: after half of its slow start D has %.2f of its keys", m, part)
		}
	}
}
