// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package sticky

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// model is the table as a list in order of last use.
type model struct {
	limit   int
	timeout time.Duration
	entries []modelEntry
}

type modelEntry struct {
	id, sid string
	used    time.Time
}

func (m *model) expire(now time.Time) {
	m.entries = slices.DeleteFunc(m.entries, func(e modelEntry) bool { return now.Sub(e.used) > m.timeout })
	m.entries = m.entries[max(0, len(m.entries)-m.limit):]
}

func (m *model) lookup(id string) string {
	for _, e := range m.entries {
		if e.id == id {
			return e.sid
		}
	}
	return ""
}

func (m *model) learn(id, sid string, create bool, now time.Time) {
	known := m.lookup(id) != ""
	if !known && !create {
		return
	}
	m.entries = slices.DeleteFunc(m.entries, func(e modelEntry) bool { return e.id == id })
	m.entries = append(m.entries, modelEntry{id, sid, now})
	m.expire(now)
}

func TestTheTableEqualsAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		table, m := NewTable(limit, 10*time.Second), &model{limit: limit, timeout: 10 * time.Second}
		now := peertest.Start
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			id := fmt.Sprint("session", rapid.IntRange(0, 7).Draw(t, "id"))
			m.expire(now)
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				m.limit, m.timeout = rapid.IntRange(1, 5).Draw(t, "limit"), time.Duration(rapid.IntRange(1, 20).Draw(t, "timeout"))*time.Second
				table.Resize(m.limit, m.timeout, now)
				m.expire(now)
			case 1, 2:
				sid, _ := table.Lookup(id, now)
				if want := m.lookup(id); sid != want {
					t.Fatalf("Lookup(%s) = %q, want %q", id, sid, want)
				}
			default:
				sid, create := fmt.Sprint("peer", rapid.IntRange(0, 2).Draw(t, "sid")), rapid.Bool().Draw(t, "create")
				table.Learn(id, sid, create, now)
				m.learn(id, sid, create, now)
			}
			if table.Len() > m.limit {
				t.Fatalf("%d entries, more than %d", table.Len(), m.limit)
			}
		}
	})
}

func TestASessionIsForgottenOnlyAfterItsTimeout(t *testing.T) {
	table, now := NewTable(10, time.Minute), peertest.Start
	table.Learn("s", "a", true, now)
	if sid, ok := table.Lookup("s", now.Add(time.Minute)); !ok || sid != "a" {
		t.Errorf("Lookup after its timeout exactly = %q, %v, want a", sid, ok)
	}
	if sid, ok := table.Lookup("s", now.Add(time.Minute+1)); ok {
		t.Errorf("Lookup after its timeout = %q, want nothing", sid)
	}
	if got := table.Len(); got != 0 {
		t.Errorf("Len() = %d, want 0", got)
	}
}

// TestDrainReachesBoundClientsOnly is the case from the field: 10 bound
// clients, 100 new ones; also when the draining server is the only one.
func TestDrainReachesBoundClientsOnly(t *testing.T) {
	for _, others := range []int{0, 1, 3} {
		cfg := peer.Config{Method: peertest.RoundRobin{}, Servers: []peer.Server{{ID: "d", Drain: true, MaxFails: 1}}}
		for i := range others {
			cfg.Servers = append(cfg.Servers, peer.Server{ID: fmt.Sprint(i)})
		}
		g := peertest.Group(t, cfg, peer.Options{})
		hint := g.Peers()[0].SID()
		var open []*peer.Lease
		for range 10 {
			l := peertest.Pick(g, peer.SessionOptions{Hint: hint}, peertest.Start)
			if l == nil || l.Peer().ID() != "d" {
				t.Fatalf("%d others: a bound client got %v", others, l)
			}
			open = append(open, l)
		}
		for range 100 {
			if got := peertest.Get(g, peer.SessionOptions{}, peertest.Start); got == "d" {
				t.Fatalf("%d others: a new client got the draining server", others)
			}
		}
		if s := g.Snapshot(time.Now())[0]; !s.Draining || s.Conns != 10 {
			t.Errorf("%d others: draining %v with %d in flight, want 10", others, s.Draining, s.Conns)
		}
		for _, l := range open {
			l.Done(peer.Success, peertest.Start)
		}
		if s := g.Snapshot(time.Now())[0]; s.Draining {
			t.Errorf("%d others: still draining with nothing in flight", others)
		}
	}
}

func TestASecretMakesDigestsThatNobodyCanGuess(t *testing.T) {
	plain, secret, other := peer.Digest("10.0.0.1:80", ""), peer.Digest("10.0.0.1:80", "s"), peer.Digest("10.0.0.1:80", "t")
	if plain == secret || secret == other || len(secret) != 32 {
		t.Errorf("digests = %s, %s, %s", plain, secret, other)
	}
	cfg := peer.Config{Method: peertest.RoundRobin{}, Servers: []peer.Server{{ID: "10.0.0.1:80"}, {ID: "b", Route: "r"}}}
	g := peertest.Group(t, cfg, peer.Options{})
	cfg.Secret = "s"
	peertest.Apply(t, g, cfg, peertest.Start)
	if a, b := g.Peers()[0].SID(), g.Peers()[1].SID(); a != secret || b != "r" {
		t.Errorf("sids = %s, %s, want %s and the route", a, b, secret)
	}
	if got := peertest.Get(g, peer.SessionOptions{Hint: secret}, peertest.Start); got != "10.0.0.1:80" {
		t.Errorf("hinted pick = %s", got)
	}
}
