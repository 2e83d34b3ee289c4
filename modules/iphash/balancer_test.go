// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package iphash

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

var t0 = peertest.Start

func TestDrawsAreThoseOfTheTable(t *testing.T) {
	for client, want := range map[string][3]uint32{
		"127.0.0.1": {4040, 5510, 4957}, "10.1.2.3": {2680, 4363, 5432}, "192.168.1.7": {154, 5654, 1196},
		"203.0.113.9": {2592, 4547, 3065}, "::1": {5945, 1692, 1535}, "2001:db8::1": {2600, 2675, 497}, "unix:": {295, 4219, 2922},
	} {
		h := uint32(seed)
		for i, w := range want {
			if h = draw(h, clientOf(client)); h != w {
				t.Errorf("%s: draw %d = %d, want %d", client, i+1, h, w)
			}
		}
	}
}

func picks(t *testing.T, servers []peer.Server) (got string) {
	g := peertest.Group(t, peer.Config{Method: Method{}, Servers: servers}, peer.Options{})
	for i := 1; i <= 30; i++ {
		got += peertest.Get(g, peer.SessionOptions{Client: clientOf(fmt.Sprintf("127.0.%d.2", i))}, t0)
	}
	return got
}

func TestClientsReachTheServersThatNginxPicks(t *testing.T) {
	a, b, c := peer.Server{ID: "A"}, peer.Server{ID: "B"}, peer.Server{ID: "C"}
	twice := ""
	for range 15 {
		twice += "BA"
	}
	if got := picks(t, []peer.Server{a, b}); got != twice {
		t.Errorf("two servers: %s, want %s", got, twice)
	}
	a.Weight, c.Down = 2, true
	if got, want := picks(t, []peer.Server{a, b, c}), "ABBAABAAABAAABAAABAAABAAABAAAB"; got != want {
		t.Errorf("weights 2,1 and one down: %s, want %s", got, want)
	}
}

// CASES 9; the client behind a proxy that is trusted is in integration.
func TestANetworkOfIPv4ReachesOneServerAndIPv6UsesAllOctets(t *testing.T) {
	var servers []peer.Server
	for i := range 7 {
		servers = append(servers, peer.Server{ID: fmt.Sprint(i)})
	}
	g := peertest.Group(t, peer.Config{Method: Method{}, Servers: servers}, peer.Options{})
	seen := map[string]int{}
	for i := 1; i <= 254; i++ {
		seen[peertest.Get(g, peer.SessionOptions{Client: clientOf(fmt.Sprintf("192.0.2.%d", i))}, t0)]++
	}
	if len(seen) != 1 {
		t.Errorf("192.0.2.1 to .254 reach %v, want one server", seen)
	}
	for octet := range 16 {
		seen := map[string]bool{}
		for v := range 64 {
			var a [16]byte
			a[0], a[octet] = 0x20, byte(v)
			seen[peertest.Get(g, peer.SessionOptions{Client: netip.AddrFrom16(a)}, t0)] = true
		}
		if len(seen) < 2 {
			t.Errorf("octet %d of IPv6 does not matter", octet)
		}
	}
}
