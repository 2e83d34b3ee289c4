// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package leasttime

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
	"github.com/caddy-upstream/caddy-upstream/internal/timing"
)

var t0 = peertest.Start

const ms = time.Millisecond

var lastByte = timing.Mode{Metric: peer.LastByte}

func servers(failTimeout time.Duration, ids ...string) (s []peer.Server) {
	for _, id := range ids {
		s = append(s, peer.Server{ID: id, MaxFails: 1, FailTimeout: failTimeout})
	}
	return s
}

// request takes the time that the server has, and moves the clock by it.
func request(g *peer.Group, times map[string]time.Duration, now *time.Time) string {
	l := peertest.Pick(g, peer.SessionOptions{}, *now)
	id := l.Peer().ID()
	*now = now.Add(times[id])
	l.Observe(peer.FirstByte, times[id], *now)
	l.Done(peer.Success, *now)
	return id
}

func TestASlowFirstRequestSendsTheOthersElsewhere(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: LeastTime{lastByte}, Servers: servers(10*time.Second, "1", "2")}, peer.Options{})
	now, got := t0, ""
	for range 10 {
		got += request(g, map[string]time.Duration{"1": 4500 * ms, "2": ms}, &now)
	}
	if got != "1222222222" {
		t.Errorf("picks = %s, want one of 1 and nine of 2", got)
	}
}

func TestASlowServerIsProbedOnceItsTimesHaveFaded(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: LeastTime{lastByte}, Servers: servers(0, "1", "2")}, peer.Options{})
	now, times := t0, map[string]time.Duration{"1": 4500 * ms, "2": ms}
	for range 10 {
		request(g, times, &now)
	}
	now = now.Add(10 * time.Second)
	got := ""
	for range 10 {
		got += request(g, times, &now)
	}
	if strings.Count(got, "1") != 1 {
		t.Errorf("picks = %s, want one probe of 1", got)
	}
}

func TestTiesAreSharedByRoundRobinAndWeightsCount(t *testing.T) {
	s := servers(10*time.Second, "a", "b", "c")
	s[0].Weight = 2
	g := peertest.Group(t, peer.Config{Method: LeastTime{lastByte}, Servers: s}, peer.Options{})
	now, got := t0, ""
	for range 4 {
		got += request(g, map[string]time.Duration{"a": 5 * ms, "b": 5 * ms, "c": 5 * ms}, &now)
	}
	if got != "aaaa" { // 20/2 is less than 20/1
		t.Errorf("picks = %s, want the heavy one while it is idle", got)
	}
	s[0].Weight = 1
	peertest.Apply(t, g, peer.Config{Method: LeastTime{lastByte}, Servers: s}, now)
	got = ""
	for range 6 {
		got += request(g, map[string]time.Duration{"a": 5 * ms, "b": 5 * ms, "c": 5 * ms}, &now)
	}
	if got != "abcabc" {
		t.Errorf("picks = %s, want abcabc", got)
	}
}

// TestTheSlowOneGetsAtMostATenth is CASES 11: 200 ms against two
// of 5 ms, 50 requests to warm up.
func TestTheSlowOneGetsAtMostATenth(t *testing.T) {
	for name, m := range map[string]peer.Method{
		"last_byte": LeastTime{lastByte},
		"inflight":  LeastTime{timing.Mode{Metric: peer.FirstByte, Inflight: true}},
		"ewma":      EWMA{peer.FirstByte},
	} {
		g := peertest.Group(t, peer.Config{Method: m, Servers: servers(10*time.Second, "a", "slow", "b")}, peer.Options{})
		now, times := t0, map[string]time.Duration{"a": 5 * ms, "b": 5 * ms, "slow": 200 * ms}
		for range 50 {
			request(g, times, &now)
		}
		n := map[string]int{}
		for range 300 {
			n[request(g, times, &now)]++
		}
		if n["slow"] > 30 || n["a"] < 100 || n["b"] < 100 {
			t.Errorf("%s: %v of 300, want at most 30 for the slow one", name, n)
		}
		now = now.Add(10 * time.Minute)
		n = map[string]int{}
		for range 20 {
			n[request(g, times, &now)]++
		}
		if n["slow"] == 0 {
			t.Errorf("%s: the slow one was not tried again after ten minutes", name)
		}
	}
}

func TestAFastFailureIsNoMerit(t *testing.T) {
	s := servers(10*time.Second, "a", "bad")
	s[0].Down, s[1].MaxFails = true, 0
	g := peertest.Group(t, peer.Config{Method: EWMA{peer.FirstByte}, Servers: s, SingleCountsDown: true}, peer.Options{})
	now := t0
	bad := g.Peers()[1]
	l := peertest.Pick(g, peer.SessionOptions{}, now)
	l.Observe(peer.FirstByte, 50*ms, now)
	l.Done(peer.Success, now)
	before := timing.Of(bad).Cost(now)
	for range 20 {
		peertest.Pick(g, peer.SessionOptions{}, now).Done(peer.Failed, now.Add(ms))
	}
	if got := timing.Of(bad).Cost(now); got < before {
		t.Errorf("cost = %v after fast failures, want not less than %v", got, before)
	}
	peertest.Pick(g, peer.SessionOptions{}, now).Done(peer.Failed, now.Add(time.Second))
	if got := timing.Of(bad).Cost(now.Add(time.Second)); got < .9 {
		t.Errorf("cost = %v after a time out of a second, want about 1", got)
	}
}

func TestTimesSurviveAChangeOfTheConfiguration(t *testing.T) {
	s := servers(time.Hour, "slow", "fast")
	for _, m := range []peer.Method{LeastTime{lastByte}, EWMA{peer.LastByte}} {
		g := peertest.Group(t, peer.Config{Method: m, Servers: s}, peer.Options{})
		now, times := t0, map[string]time.Duration{"slow": 400 * ms, "fast": 5 * ms}
		for range 20 {
			request(g, times, &now)
		}
		peertest.Apply(t, g, peer.Config{Method: m, Servers: append(s, peer.Server{ID: "down", Down: true})}, now)
		n := 0
		for range 10 {
			if request(g, times, &now) == "slow" {
				n++
			}
		}
		if n > 1 {
			t.Errorf("%T: %d of 10 at the slow one right after the change", m, n)
		}
	}
}
