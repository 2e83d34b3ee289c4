// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

func TestPointsComeFromTheServerString(t *testing.T) {
	for _, c := range []struct {
		line  string
		first []uint32
		last  uint32
	}{
		{"127.0.0.1:8081", []uint32{0x50aabcf7, 0xb8dc900a, 0x2a3355ce, 0x839f657f}, 0x9516e869},
		{"127.0.0.1:8082", []uint32{0x170ac627, 0xc6f1d61f, 0xe9d47f15, 0x13e21420}, 0x9c9775a5},
		{"127.0.0.1:8083", []uint32{0x2a6aef97, 0xeceaebec, 0x1e599b63, 0x63c93b15}, 0x2d38fcde},
		{"backend.example.com", []uint32{0x46127ded, 0xd9658b7d, 0xd5a2045f, 0xb8fd32f5}, 0x6a6b4e6e},
		{"unix:/tmp/sock", []uint32{0xde072055, 0x34b3f031, 0xcd08c58f, 0xd155e696}, 0x372e993c},
		{"[::1]:8081", []uint32{0x559dbc93, 0xe9c2a481, 0xfe137761, 0xbc53cca9}, 0x3f0066e1},
	} {
		got := points(nil, c.line, 160)
		if !slices.Equal(got[:4], c.first) || got[159] != c.last {
			t.Errorf("points(%q) = %08x ... %08x, want %08x ... %08x", c.line, got[:4], got[159], c.first, c.last)
		}
	}
}

func TestServerStringsAreSplitAtTheLastColonBeforeDigits(t *testing.T) {
	for line, want := range map[string][2]string{
		"127.0.0.1:80": {"127.0.0.1", "80"}, "[::1]:80": {"[::1]", "80"}, "[::1]": {"[::1]", ""},
		"unix:/a:80": {"/a:80", ""}, "UNIX:/a": {"/a", ""}, "host": {"host", ""}, "host:": {"host:", ""},
		"host:http": {"host:http", ""}, ":80": {"", "80"}, "": {"", ""},
	} {
		if host, port := split(line); host != want[0] || port != want[1] {
			t.Errorf("split(%q) = %q, %q, want %q", line, host, port, want)
		}
	}
}

// following returns the servers of the n points from the place of key on.
func following(g *peer.Group, c *consistent, key string, n int) (lines []string) {
	at := c.ring.seek(checksum(0, key))
	for range n {
		lines = append(lines, c.ring.nodes[at.at().node].line)
		at.next()
	}
	return lines
}

// capture is a method that remembers the balancer of the primaries.
type capture struct {
	peer.Method
	got *peer.Balancer
}

func (c capture) NewBalancer(l *peer.List, old peer.Balancer) peer.Balancer {
	b := c.Method.NewBalancer(l, old)
	if !l.Backup() {
		*c.got = b
	}
	return b
}

func TestTheNextPointsAreThoseOfTheTable(t *testing.T) {
	var b peer.Balancer
	servers := []peer.Server{{ID: "1", Line: "127.0.0.1:8081"}, {ID: "2", Line: "127.0.0.1:8082"}, {ID: "3", Line: "127.0.0.1:8083"}}
	g := peertest.Group(t, peer.Config{Method: capture{Consistent{}, &b}, Servers: servers}, peer.Options{})
	for key, want := range map[string]string{
		"foo": "12311", "bar": "33323", "1": "12113", "2": "33331", "3": "13133", "4": "32323", "127.0.0.1": "21122",
	} {
		got := ""
		for _, line := range following(g, b.(*consistent), key, 5) {
			got += line[len(line)-1:]
		}
		if got != want {
			t.Errorf("servers from %q on = %s, want %s", key, got, want)
		}
	}
}

func owners(g *peer.Group, keys int) []string {
	got := make([]string, keys)
	for i := range got {
		got[i] = peertest.Get(g, peer.SessionOptions{Key: fmt.Sprint("key", i)}, t0)
	}
	return got
}

// CASES 6.
func TestWhenAServerGoesOnlyItsKeysMove(t *testing.T) {
	servers := equal(10)
	g := peertest.Group(t, peer.Config{Method: Consistent{}, Servers: servers}, peer.Options{})
	before := owners(g, 1000)
	peertest.Apply(t, g, peer.Config{Method: Consistent{}, Servers: slices.Delete(slices.Clone(servers), 4, 5)}, t0)
	moved := 0
	for i, id := range owners(g, 1000) {
		if before[i] == id {
			continue
		}
		moved++
		if before[i] != "E" {
			t.Errorf("key%d moved from %s to %s", i, before[i], id)
		}
	}
	if moved < 50 || moved > 150 {
		t.Errorf("%d of 1000 keys moved, want about 100 and at most 150", moved)
	}
	peertest.Apply(t, g, peer.Config{Method: Consistent{}, Servers: servers}, t0)
	if got := owners(g, 1000); !slices.Equal(got, before) {
		t.Error("the keys did not come back with the server")
	}
}

// CASES 8.
func TestTheOrderOfTheServersDoesNotMatter(t *testing.T) {
	servers := weighted(1, 4, 2, 3, 9, 1, 1)
	before := owners(peertest.Group(t, peer.Config{Method: Consistent{}, Servers: servers}, peer.Options{}), 1000)
	slices.Reverse(servers)
	if got := owners(peertest.Group(t, peer.Config{Method: Consistent{}, Servers: servers}, peer.Options{}), 1000); !slices.Equal(got, before) {
		t.Error("keys moved")
	}
}

// TestARingThatWasChangedEqualsOneThatWasBuiltSo changes the members of one
// group again and again and compares its ring with that of a fresh group.
func TestARingThatWasChangedEqualsOneThatWasBuiltSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var changed peer.Balancer
		g := peer.NewGroup(peer.Options{})
		var servers []peer.Server
		ids := 0
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			for range rapid.IntRange(1, 3).Draw(t, "at once") {
				i := rapid.IntRange(0, len(servers)).Draw(t, "which")
				w := rapid.SampledFrom([]int{1, 1, 2, 3, 20}).Draw(t, "weight")
				switch {
				case i == len(servers):
					ids++
					line := fmt.Sprintf("10.0.0.1:%d", rapid.IntRange(1, 9).Draw(t, "port"))
					servers = append(servers, peer.Server{ID: fmt.Sprint(ids), Line: line, Weight: w})
				case rapid.Bool().Draw(t, "remove"):
					servers = slices.Delete(slices.Clone(servers), i, i+1)
				default:
					servers = slices.Clone(servers)
					servers[i].Weight = w
				}
			}
			var fresh peer.Balancer
			for _, x := range []struct {
				g *peer.Group
				b *peer.Balancer
			}{{g, &changed}, {peer.NewGroup(peer.Options{}), &fresh}} {
				if err := x.g.Apply(peer.Config{Method: capture{Consistent{}, x.b}, Tracker: peertest.Rules{}, Servers: servers}, t0); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := all(changed), all(fresh); !slices.Equal(got, want) {
				t.Fatalf("the ring has %d points, want %d; or they differ", len(got), len(want))
			}
		}
	})
}

// all lists the points of a ring, ordered and with the servers they belong to.
func all(b peer.Balancer) (lines []string) {
	r := &b.(*consistent).ring
	var before *point
	for _, bucket := range r.buckets {
		for i := range bucket {
			p := &bucket[i]
			if before != nil && cmp.Compare(before.value, p.value) > 0 {
				panic("not sorted")
			}
			before = p
			n := r.nodes[p.node]
			lines = append(lines, fmt.Sprintf("%08x %s %d", p.value, n.line, len(n.peers)))
		}
	}
	return lines
}

// TestNoServerTakesMoreThanItsBound opens ever more requests for few keys.
func TestNoServerTakesMoreThanItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.SampledFrom([]float64{1, 1.25, 2}).Draw(t, "factor")
		n := rapid.IntRange(2, 8).Draw(t, "servers")
		var servers []peer.Server
		total := 0
		for i := range n {
			w := rapid.IntRange(1, 4).Draw(t, "weight")
			total += w
			servers = append(servers, peer.Server{ID: fmt.Sprint(i), Address: fmt.Sprint(i), Weight: w})
		}
		g := peer.NewGroup(peer.Options{})
		if err := g.Apply(peer.Config{Method: Consistent{BalanceFactor: factor}, Tracker: peertest.Rules{}, Servers: servers}, t0); err != nil {
			t.Fatal(err)
		}
		var open []*peer.Lease
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			if len(open) > 0 && rapid.IntRange(0, 3).Draw(t, "end") == 0 {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				open[i].Done(peer.Success, t0)
				open = slices.Delete(open, i, i+1)
				continue
			}
			l := peertest.Pick(g, peer.SessionOptions{Key: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "key"))}, t0)
			open = append(open, l)
			bound := factor*float64(len(open))*float64(l.Peer().Server().Weight)/float64(total) + 1
			if float64(l.Peer().Conns()) >= bound {
				t.Fatalf("%d of %d requests at a server of weight %d of %d", l.Peer().Conns(), len(open), l.Peer().Server().Weight, total)
			}
		}
	})
}

func TestOverflowGoesToTheNextOnTheRing(t *testing.T) {
	var b peer.Balancer
	g := peertest.Group(t, peer.Config{Method: capture{Consistent{BalanceFactor: 1.25}, &b}, Servers: equal(5)}, peer.Options{})
	var got []string
	for range 3 {
		got = append(got, peertest.Pick(g, peer.SessionOptions{Key: "hot"}, t0).Peer().Server().Line)
	}
	var want []string
	for _, line := range following(g, b.(*bounded).consistent, "hot", 40) {
		if !slices.Contains(want, line) {
			want = append(want, line)
		}
	}
	if !slices.Equal(got, want[:3]) {
		t.Errorf("three requests with one key at once went to %v, want %v", got, want[:3])
	}
}
