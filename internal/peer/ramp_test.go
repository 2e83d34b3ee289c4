// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

var t0 = peertest.Start

func at(d time.Duration) time.Time { return t0.Add(d) }

// shares counts n picks, in percent.
func shares(g *peer.Group, n int, now time.Time) map[string]float64 {
	got := map[string]float64{}
	for range n {
		got[peertest.Get(g, peer.SessionOptions{}, now)] += 100 / float64(n)
	}
	return got
}

func state(t *testing.T, g *peer.Group, id string) peer.State {
	t.Helper()
	return stateAt(t, g, id, t0)
}

func stateAt(t *testing.T, g *peer.Group, id string, now time.Time) peer.State {
	t.Helper()
	for _, s := range g.Snapshot(now) {
		if s.Server.ID == id {
			return s
		}
	}
	t.Fatalf("no peer %q", id)
	return peer.State{}
}

// fail lets the next pick of id fail.
func fail(t *testing.T, g *peer.Group, id string, now time.Time) {
	t.Helper()
	for range 1000 {
		l := peertest.Pick(g, peer.SessionOptions{}, now)
		if l == nil {
			break
		}
		if l.Peer().ID() == id {
			l.Cause = errors.New("refused")
			l.Done(peer.Failed, now)
			return
		}
		l.Done(peer.Success, now)
	}
	t.Fatalf("%s is not picked", id)
}

func slowPair(weightA, weightB int) []peer.Server {
	return []peer.Server{
		{ID: "a", Weight: weightA, SlowStart: 10 * time.Second, MaxFails: 1, FailTimeout: time.Second},
		{ID: "b", Weight: weightB, SlowStart: 10 * time.Second, MaxFails: 1, FailTimeout: time.Second},
	}
}

func TestAServerAddedToRunningOnesStartsSlowlyAndLinearly(t *testing.T) {
	servers, m := slowPair(1, 1), peertest.RoundRobin{}
	g := peertest.Group(t, peer.Config{Method: m, Servers: servers[:1]}, peer.Options{})
	peertest.Apply(t, g, peer.Config{Method: m, Servers: servers}, t0)
	for _, want := range []struct {
		after    time.Duration
		low, top float64
		percent  int
	}{
		{0, 0, 2, 1}, {2 * time.Second, 14, 19, 20}, {5 * time.Second, 31, 36, 50},
		{9 * time.Second, 45, 49, 90}, {10 * time.Second, 50, 50, 100}, {time.Hour, 50, 50, 100},
	} {
		if s := stateAt(t, g, "b", at(want.after)); s.SlowStart != want.percent {
			t.Errorf("SlowStart after %s, before a pick = %d, want %d", want.after, s.SlowStart, want.percent)
		}
		got := shares(g, 1000, at(want.after))["b"]
		if got < want.low-.01 || got > want.top+.01 {
			t.Errorf("share of b after %s = %.1f %%, want %v to %v", want.after, got, want.low, want.top)
		}
		if s := stateAt(t, g, "b", at(want.after)); s.SlowStart != want.percent {
			t.Errorf("SlowStart after %s = %d, want %d", want.after, s.SlowStart, want.percent)
		}
	}
}

func TestServersOfTheFirstConfigurationStartWhole(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: slowPair(3, 1)}, peer.Options{})
	got := ""
	for range 8 {
		got += peertest.Get(g, peer.SessionOptions{}, t0)
	}
	if want := "aabaaaba"; got != want {
		t.Errorf("picks = %s, want %s: the cycle of weights 3 and 1", got, want)
	}
	if s := state(t, g, "b"); s.CurrentWeight < -3 || s.CurrentWeight > 3 {
		t.Errorf("CurrentWeight = %d, want it in the unit of the configuration", s.CurrentWeight)
	}
}

func TestASlowStartIsNeverStarved(t *testing.T) {
	servers := slowPair(100, 1)
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers[:1]}, peer.Options{})
	peertest.Apply(t, g, peer.Config{Method: peertest.RoundRobin{}, Servers: servers}, t0)
	if got := shares(g, 20_000, t0)["b"]; got == 0 {
		t.Error("b of weight 1 beside 100 got nothing at the beginning of its slow start")
	}
}

func TestASlowStartRestartsWhenTheServerFlaps(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: slowPair(1, 1)}, peer.Options{})
	fail(t, g, "b", t0)
	shares(g, 10, at(2*time.Second)) // probes b, which is trusted again
	if s := stateAt(t, g, "b", at(2*time.Second)); s.SlowStart > 1 || !s.Until.IsZero() {
		t.Fatalf("after its recovery b is at %d %% (until %v), want 1", s.SlowStart, s.Until)
	}
	shares(g, 1000, at(7*time.Second))
	if s := stateAt(t, g, "b", at(7*time.Second)); s.SlowStart != 50 {
		t.Fatalf("5 s later b is at %d %%, want 50", s.SlowStart)
	}
	fail(t, g, "b", at(8*time.Second))
	shares(g, 10, at(10*time.Second))
	shares(g, 1000, at(12*time.Second))
	if s := stateAt(t, g, "b", at(12*time.Second)); s.SlowStart != 20 {
		t.Errorf("2 s after it came back again b is at %d %%, want 20", s.SlowStart)
	}
}

func TestASoleServerDoesNotStartSlowly(t *testing.T) {
	servers := slowPair(1, 1)
	servers[0].Down = true
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers[:1]}, peer.Options{})
	peertest.Apply(t, g, peer.Config{Method: peertest.RoundRobin{}, Servers: servers}, t0)
	peertest.Get(g, peer.SessionOptions{}, t0)
	if s := state(t, g, "b"); s.SlowStart != 100 {
		t.Errorf("SlowStart of the only usable server = %d, want 100", s.SlowStart)
	}
}

func TestAServerThatWasDownStartsSlowly(t *testing.T) {
	servers := slowPair(1, 1)
	servers[1].Down = true
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers}, peer.Options{})
	servers[1].Down = false
	peertest.Apply(t, g, peer.Config{Method: peertest.RoundRobin{}, Servers: servers}, t0)
	if got := strings.Count(sequence(g, 100, t0), "b"); got > 2 {
		t.Errorf("b got %d of the first 100 requests, want 2 at most", got)
	}
	// A removed server's ramp goes with it.
	peertest.Apply(t, g, peer.Config{Method: peertest.RoundRobin{}, Servers: servers[:1]}, at(time.Second))
	if got := sequence(g, 3, at(2*time.Second)); got != "aaa" {
		t.Errorf("picks = %s, want aaa", got)
	}
}

func sequence(g *peer.Group, n int, now time.Time) string {
	var b strings.Builder
	for range n {
		b.WriteString(peertest.Get(g, peer.SessionOptions{}, now))
	}
	return b.String()
}

// TestSlowStartsGoOverConfigurationChanges: unrelated changes neither end nor
// restart a ramp, and the cycle is whole again after it.
func TestSlowStartsGoOverConfigurationChanges(t *testing.T) {
	servers := slowPair(1, 1)
	m := peertest.RoundRobin{}
	g := peertest.Group(t, peer.Config{Method: m, Servers: servers[:1]}, peer.Options{})
	peertest.Apply(t, g, peer.Config{Method: m, Servers: servers}, t0)
	more := append(servers, peer.Server{ID: "c", Down: true})
	peertest.Apply(t, g, peer.Config{Method: m, Servers: more}, at(4*time.Second))
	shares(g, 100, at(6*time.Second))
	if s := stateAt(t, g, "b", at(6*time.Second)); s.SlowStart != 60 {
		t.Errorf("SlowStart = %d after 6 s, want 60", s.SlowStart)
	}
	sequence(g, 10, at(11*time.Second))
	if got := sequence(g, 6, at(11*time.Second)); got != "ababab" && got != "bababa" {
		t.Errorf("picks after the ramp = %s, want a and b in turn", got)
	}
}
