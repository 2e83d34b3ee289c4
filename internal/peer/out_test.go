// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

func TestHoldersLearnThatAServerIsTakenOut(t *testing.T) {
	now := time.Unix(1000, 0)
	var out []string
	g := peer.NewGroup(peer.Options{Name: "g", OnEvent: func(e peer.Event) {
		if e.Kind == peer.ServerOut {
			out = append(out, e.Peer.ID())
		}
	}})
	config := func(ids ...string) peer.Config {
		c := peer.Config{Method: peertest.RoundRobin{}, Tracker: peertest.Rules{}}
		for _, id := range ids {
			s := peer.Server{ID: id[:1], Address: id[:1], Weight: 1, Down: len(id) > 1 && id[1] == '-', Drain: len(id) > 1 && id[1] == '~'}
			c.Servers = append(c.Servers, s)
		}
		return c
	}
	apply := func(ids ...string) {
		t.Helper()
		if err := g.Apply(config(ids...), now); err != nil {
			t.Fatal(err)
		}
	}
	apply("a", "b", "c", "d")
	var leases []*peer.Lease
	for range 3 { // d is not held
		s := new(peer.Session)
		s.Begin(g, peer.SessionOptions{})
		l, err := s.Next(now)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	apply("a-", "b~", "c")
	apply("a-", "b~")
	if want := []string{"a", "c"}; !slices.Equal(out, want) {
		t.Errorf("taken out: %v, want %v: held ones that are down or removed, once", out, want)
	}
	for i, want := range []bool{false, true, false} {
		if got := g.InService(leases[i].Peer()); got != want {
			t.Errorf("InService(%s) = %t, want %t", leases[i].Peer().ID(), got, want)
		}
	}
}
