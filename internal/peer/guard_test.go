// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

func plain(n int) (servers []peer.Server) {
	for i := range n {
		servers = append(servers, peer.Server{ID: fmt.Sprintf("s%d", i), MaxFails: 1, FailTimeout: 10 * time.Second})
	}
	return servers
}

// failAll lets every server that is picked fail, for a while.
func failAll(g *peer.Group, requests int, now time.Time) {
	for range requests {
		if l := peertest.Pick(g, peer.SessionOptions{}, now); l != nil {
			l.Done(peer.Failed, now)
		}
	}
}

func out(g *peer.Group) (n int) {
	for _, s := range g.Snapshot(t0) {
		if !s.Until.IsZero() {
			n++
		}
	}
	return n
}

func TestNoMoreThanMaxUnavailableAreTakenOut(t *testing.T) {
	for _, c := range []struct{ servers, percent, want int }{
		{3, 50, 1}, {3, 67, 2}, {3, 33, 0}, {3, 100, 3}, {3, 0, 3}, {10, 50, 5}, {10, 9, 0},
	} {
		g := peertest.Group(t, peer.Config{
			Method: peertest.RoundRobin{}, Servers: plain(c.servers), Guards: peer.Guards{MaxUnavailable: c.percent},
		}, peer.Options{})
		failAll(g, 100, t0)
		if got := out(g); got != c.want {
			t.Errorf("%d servers, max_unavailable %d: %d out, want %d", c.servers, c.percent, got, c.want)
		}
		if c.want < c.servers && peertest.Pick(g, peer.SessionOptions{}, t0) == nil {
			t.Errorf("%d servers, max_unavailable %d: none is left", c.servers, c.percent)
		}
	}
}

func TestAServerThatWasSparedIsTakenOutOnceAnotherIsBack(t *testing.T) {
	cfg := peer.Config{Method: peertest.RoundRobin{}, Servers: plain(2), Guards: peer.Guards{MaxUnavailable: 50}}
	g := peertest.Group(t, cfg, peer.Options{})
	fail(t, g, "s0", t0)
	fail(t, g, "s1", t0)
	if a, b := state(t, g, "s0"), state(t, g, "s1"); a.Until.IsZero() || !b.Until.IsZero() || !b.Spared {
		t.Fatalf("s0 %+v\ns1 %+v\nwant s0 out and s1 spared", a, b)
	}
	sequence(g, 4, at(11*time.Second)) // s0 is tried and trusted again
	fail(t, g, "s1", at(12*time.Second))
	if a, b := state(t, g, "s0"), state(t, g, "s1"); !a.Until.IsZero() || b.Until.IsZero() || b.Spared {
		t.Errorf("s0 %+v\ns1 %+v\nwant s1 out", a, b)
	}
}

func TestPanicIgnoresTheTrackerWhileTooFewAreUp(t *testing.T) {
	var kinds []peer.EventKind
	servers := append(plain(4), peer.Server{ID: "down", Down: true})
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers, Guards: peer.Guards{Panic: 50}},
		peer.Options{OnEvent: func(e peer.Event) {
			if e.Kind == peer.PanicBegins || e.Kind == peer.PanicEnds {
				kinds = append(kinds, e.Kind)
			}
		}})
	fail(t, g, "s0", t0)
	fail(t, g, "s1", t0)
	if got := shares(g, 100, t0); got["s0"] != 0 || g.Status().Panic {
		t.Fatalf("two of four up: shares %v, panic %v; want s0 left out", got, g.Status().Panic)
	}
	fail(t, g, "s2", t0)
	if got := shares(g, 100, t0); len(got) != 4 || got["down"] != 0 || !g.Status().Panic {
		t.Fatalf("one of four up: shares %v, panic %v; want all that are not down", got, g.Status().Panic)
	}
	sequence(g, 20, at(11*time.Second)) // all answer
	if g.Status().Panic || fmt.Sprint(kinds) != fmt.Sprint([]peer.EventKind{peer.PanicBegins, peer.PanicEnds}) {
		t.Errorf("panic %v, events %v, want one beginning and one end", g.Status().Panic, kinds)
	}
}

// TestARetryBudgetAllowsItsPartOfTheActiveRequests has n requests open; as many
// as may try once more do.
func TestARetryBudgetAllowsItsPartOfTheActiveRequests(t *testing.T) {
	policy := &peer.NextPolicy{Conditions: peer.DefaultConditions}
	for _, c := range []struct{ active, want int }{{25, 5}, {2, 2}, {10, 3}, {50, 10}} {
		servers := plain(5)
		for i := range servers {
			servers[i].MaxFails = 0
		}
		g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers,
			Guards: peer.Guards{RetryBudget: 20, RetryMin: 3}}, peer.Options{})
		sessions := make([]peer.Session, c.active)
		leases := make([]*peer.Lease, c.active)
		for i := range sessions {
			sessions[i].Begin(g, peer.SessionOptions{})
			leases[i], _ = sessions[i].Next(t0)
		}
		retries := 0
		for i := range sessions {
			s := &sessions[i]
			if !s.MayReplace(policy, peer.OnError, peer.Progress{}, t0) {
				continue
			}
			leases[i].Done(peer.Failed, t0)
			if !s.MayRetry(policy, peer.OnError, peer.Progress{}, t0) {
				t.Errorf("%d active: MayReplace allowed what MayRetry does not", c.active)
			}
			l, err := s.Next(t0)
			if err != nil {
				t.Fatalf("%d active: %v", c.active, err)
			}
			leases[i] = l
			retries++
		}
		if retries != c.want {
			t.Errorf("%d active: %d retries at once, want %d", c.active, retries, c.want)
		}
		if got := g.Status(); got.Active != int64(c.active) || got.Retrying != int64(retries) {
			t.Errorf("Status() = %+v, want %d active and %d retrying", got, c.active, retries)
		}
		if retries < c.active {
			last := c.active - 1
			leases[last].Done(peer.Failed, t0)
			if _, err := sessions[last].Next(t0); err != peer.ErrRetryBudget {
				t.Errorf("%d active: one more retry: %v, want ErrRetryBudget", c.active, err)
			}
		}
		for _, l := range leases {
			l.Done(peer.Success, t0)
		}
		if got := g.Status(); got.Active != 0 || got.Retrying != 0 {
			t.Errorf("Status() at the end = %+v, want nothing active", got)
		}
	}
}

// TestARandomStartSpreadsTheFirstPicks counts first picks of fresh groups; the
// random numbers go round, so that the shares are exact.
func TestARandomStartSpreadsTheFirstPicks(t *testing.T) {
	servers := []peer.Server{{ID: "a", Weight: 5}, {ID: "b"}, {ID: "c", Weight: 2}}
	first := map[string]int{}
	for i := range 800 {
		o := peer.Options{IntN: func(n int) int { return i % n }}
		g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers, RandomStart: true}, o)
		got := sequence(g, 8, t0)
		first[got[:1]]++
		if n := len(got) - len(trim(got, 'a')); n != 5 {
			t.Fatalf("cycle from start %d = %s, want 5 of a", i%8, got)
		}
	}
	if first["a"] != 500 || first["b"] != 100 || first["c"] != 200 {
		t.Errorf("first picks = %v, want 500, 100, 200", first)
	}
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers}, peer.Options{})
	if got := sequence(g, 8, t0); got != "acaabaca" {
		t.Errorf("without random_start = %s, want the exact order acaabaca", got)
	}
}

func trim(s string, c rune) (kept string) {
	for _, r := range s {
		if r != c {
			kept += string(r)
		}
	}
	return kept
}

func TestARandomStartIsCheapWhateverTheWeights(t *testing.T) {
	cfg := peer.Config{Method: peertest.RoundRobin{}, RandomStart: true}
	for i := range 2000 {
		cfg.Servers = append(cfg.Servers, peer.Server{ID: fmt.Sprint(i), Weight: 1_000_003 + i})
	}
	began := time.Now()
	peertest.Group(t, cfg, peer.Options{IntN: func(n int) int { return n - 1 }})
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("took %s", d)
	}
}

func TestGuardsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, gu := range []peer.Guards{{MaxUnavailable: 101}, {Panic: -1}, {RetryBudget: 120}, {RetryMin: -1}} {
		c := peer.Config{Method: peertest.RoundRobin{}, Tracker: peertest.Rules{}, Guards: gu}
		if err := c.Validate(); err == nil {
			t.Errorf("Validate(%+v) = nil, want an error", gu)
		}
	}
}
