// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// A server whose check passes again climbs to its weight within slow_start. How
// far it has come is read before and after each batch of requests, so that a
// machine that stands still between them changes what is expected too.
func TestAServerThatIsBackClimbsToItsShare(t *testing.T) {
	t.Parallel()
	a := testnet.NewBackend(t, named("a"))
	var ill atomic.Bool
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if r.Target() == "/up" && ill.Load() {
			return testnet.Answer{Status: 503}
		}
		return named("b")
	})
	p := serve(t, group("app", a.Addr()+" id=a", b.Addr()+" id=b slow_start=10s", "health_check uri=/up interval=200ms timeout=5s"), "\tproxy_pass app")
	p.waitState("b", "up")
	for attempt := range 3 { // a machine that stood still for ten seconds has missed it
		ill.Store(true)
		p.waitState("b", "unhealthy")
		ill.Store(false)
		p.waitState("b", "up")
		if p.climbs(t) {
			break
		}
		if attempt == 2 {
			t.Fatal("the slow start was never seen under way")
		}
	}
	got := map[string]int{}
	for range 20 {
		got[p.get("/").Text()]++
	}
	if got["b"] != 10 {
		t.Errorf("answers %v after the slow start, want ten of each", got)
	}
}

// climbs follows the slow start of server b, and reports whether it saw it grow.
func (p *proxy) climbs(t *testing.T) bool {
	t.Helper()
	const batch = 40
	p.get("/") // weights move when servers are picked
	first, last, seen := 0, 0, 0
	deadline := time.Now().Add(time.Minute)
	for {
		before := p.checkedServer("b").SlowStart
		n := 0
		for range batch {
			if p.get("/").Text() == "b" {
				n++
			}
		}
		after := p.checkedServer("b").SlowStart
		t.Logf("from %d%% to %d%%: %d of %d", before, after, n, batch)
		if after < before || before < 1 || after > 100 {
			t.Fatalf("slow_start_percent %d, then %d", before, after)
		}
		low, high := batch*before/(100+before), batch*after/(100+after)
		if n < low-3 || n > high+3 {
			t.Errorf("%d of %d requests from %d%% to %d%% of its weight, want %d to %d", n, batch, before, after, low, high)
		}
		if before == 100 {
			break
		}
		if seen++; seen == 1 {
			first = after
		}
		last = n
		if time.Now().After(deadline) {
			t.Fatalf("still at %d%% after a minute", after)
		}
	}
	return seen >= 2 && first < 90 && last > 0
}
