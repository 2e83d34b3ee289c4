// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
	"github.com/caddy-upstream/caddy-upstream/internal/timing"
)

var t0 = peertest.Start

// numbers returns random numbers from a list, which it then repeats.
func numbers(of ...int) peer.Options {
	i := -1
	return peer.Options{IntN: func(n int) int {
		i++
		return of[i%len(of)] % n
	}}
}

var abc = []peer.Server{{ID: "a", Weight: 2}, {ID: "b", Weight: 3}, {ID: "c"}}

func get(t *testing.T, m peer.Method, servers []peer.Server, o peer.Options, n int) (got string) {
	g := peertest.Group(t, peer.Config{Method: m, Servers: servers}, o)
	for range n {
		got += peertest.Get(g, peer.SessionOptions{}, t0)
	}
	return got
}

func TestNumbersAreSharesOfTheWeights(t *testing.T) {
	if got := get(t, Plain{}, abc, numbers(0, 1, 2, 3, 4, 5), 6); got != "aabbbc" {
		t.Errorf("picks for 0 to 5 with weights 2,3,1 = %s, want aabbbc", got)
	}
}

func TestTwoTakesTheSecondUnlessTheFirstHasLess(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: LeastConn{}, Servers: abc}, numbers(0, 2, 3, 1, 5, 0, 0, 0, 5))
	for i, want := range []string{
		"b", // a 0/2, then b 0/3: equal, the second
		"a", // b 1/3, then a 0/2
		"c", // c 0/1, then a 1/2
		"a", // a 1/2, a again (a miss), then c 1/1
	} {
		if got := peertest.Pick(g, peer.SessionOptions{}, t0).Peer().ID(); got != want {
			t.Errorf("pick %d = %s, want %s", i+1, got, want)
		}
	}
}

// CASES 5.
func TestOneServerOutOfTwoNeverBreaksRandomTwo(t *testing.T) {
	for _, m := range []peer.Method{LeastConn{}, LeastTime{Mode: timing.Mode{Metric: peer.LastByte}}, Plain{}} {
		servers := []peer.Server{{ID: "a"}, {ID: "b", Down: true}}
		g := peertest.Group(t, peer.Config{Method: m, Servers: servers, SingleCountsDown: true}, peer.Options{})
		for range 1000 {
			if got := peertest.Get(g, peer.SessionOptions{}, t0); got != "a" {
				t.Fatalf("%T: pick = %s, want a", m, got)
			}
		}
	}
}

// TestAfterTwentyOneMissesASessionStaysWithRoundRobin counts the numbers drawn.
func TestAfterTwentyOneMissesASessionStaysWithRoundRobin(t *testing.T) {
	drawn := 0
	g := peertest.Group(t, peer.Config{Method: Plain{}, Servers: []peer.Server{{ID: "a", Down: true}, {ID: "b"}, {ID: "c"}}},
		peer.Options{IntN: func(int) int { drawn++; return 0 }})
	var s peer.Session
	s.Begin(g, peer.SessionOptions{})
	for _, want := range []string{"b", "c"} {
		l, err := s.Next(t0)
		if err != nil || l.Peer().ID() != want {
			t.Fatalf("Next() = %v, %v, want %s", l, err, want)
		}
		l.Done(peer.Failed, t0)
	}
	if drawn != 21 {
		t.Errorf("%d numbers drawn, want 21 for both tries", drawn)
	}
}

func TestSharesFollowTheWeights(t *testing.T) {
	const n = 12_000
	got := map[string]int{}
	g := peertest.Group(t, peer.Config{Method: Plain{}, Servers: abc}, peer.Options{})
	for range n {
		got[peertest.Get(g, peer.SessionOptions{}, t0)]++
	}
	for _, s := range abc {
		if want := n * max(1, s.Weight) / 6; got[s.ID] < want*9/10 || got[s.ID] > want*11/10 {
			t.Errorf("%s got %d of %d, want about %d", s.ID, got[s.ID], n, want)
		}
	}
}

func TestTwoWithTimesPrefersTheFasterOne(t *testing.T) {
	servers := []peer.Server{{ID: "fast", FailTimeout: time.Minute}, {ID: "slow", FailTimeout: time.Minute}}
	g := peertest.Group(t, peer.Config{Method: LeastTime{Mode: timing.Mode{Metric: peer.LastByte}}, Servers: servers}, peer.Options{})
	got := map[string]int{}
	for range 100 {
		l := peertest.Pick(g, peer.SessionOptions{}, t0)
		d := 5 * time.Millisecond
		if l.Peer().ID() == "slow" {
			d = 200 * time.Millisecond
		}
		l.Done(peer.Success, t0.Add(d))
		got[l.Peer().ID()]++
	}
	if got["slow"] > 2 {
		t.Errorf("picks = %v, want the slow one hardly", fmt.Sprint(got))
	}
}
