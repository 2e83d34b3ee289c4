// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"testing"
	"time"
)

type plainMethod struct{}

func (plainMethod) NewBalancer(*List, Balancer) Balancer { return plainMethod{} }
func (plainMethod) Pick(p *Pass) *Peer                   { return p.RoundRobin() }

// strict disables a peer for a minute at its first failure.
type strict struct{}

func (strict) Picked(*Peer, *Health, time.Time)     {}
func (strict) Configured(*Peer, *Health, time.Time) {}
func (strict) Done(_ *Peer, h *Health, o Outcome, now time.Time) {
	if o == Failed {
		h.Fails++
		h.Until = now.Add(time.Minute)
	}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func apply(t *testing.T, g *Group, retain bool, servers ...Server) {
	t.Helper()
	for i := range servers {
		s := &servers[i]
		s.Address, s.Name = s.ID+":80", s.ID+":80"
		s.Weight = 1
	}
	err := g.Apply(Config{Servers: servers, Method: plainMethod{}, Tracker: strict{}, Retain: retain}, epoch)
	if err != nil {
		t.Fatal(err)
	}
}

func pick(t *testing.T, g *Group, s *Session) *Lease {
	t.Helper()
	s.Begin(g, SessionOptions{})
	l, err := s.Next(epoch)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAServerThatComesBackWhileItIsHeldKeepsItsLimitExact(t *testing.T) {
	var gone int
	g := NewGroup(Options{OnEvent: func(e Event) {
		if e.Kind == ServerGone {
			gone++
		}
	}})
	apply(t, g, false, Server{ID: "a", MaxConns: 1})
	var s Session
	lease := pick(t, g, &s)
	held := lease.Peer()
	apply(t, g, false, Server{ID: "b", Down: true})
	apply(t, g, false, Server{ID: "a", MaxConns: 1})
	if got := g.Peers()[0]; got != held {
		t.Error("a held server came back as another peer")
	}
	var other Session
	other.Begin(g, SessionOptions{})
	if l, err := other.Next(epoch); !errors.Is(err, ErrNoPeers) {
		t.Errorf("Next() = %v, %v beyond max_conns, want ErrNoPeers", l, err)
	}
	lease.Done(Success, epoch)
	if _, err := other.Next(epoch); err != nil {
		t.Errorf("Next() after Done: %v", err)
	}
	if n := len(g.Snapshot(epoch)); n != 1 || gone != 1 { // b, which nobody held
		t.Errorf("%d peers and %d gone, want 1 and 1", n, gone)
	}
}

func TestRetainedServersComeBackWithTheirState(t *testing.T) {
	g := NewGroup(Options{})
	apply(t, g, false, Server{ID: "a"}, Server{ID: "b"})
	var s Session
	lease := pick(t, g, &s)
	lease.Done(Failed, epoch)
	before := g.Snapshot(epoch)[0]
	apply(t, g, true, Server{ID: "b"})
	apply(t, g, false, Server{ID: "a"}, Server{ID: "b"})
	if after := g.Snapshot(epoch)[0]; after.Until != before.Until || after.Failures != 1 || after.Picks != before.Picks {
		t.Errorf("a came back as %+v, want %+v", after, before)
	}

	apply(t, g, true, Server{ID: "b"})
	if n := len(g.Snapshot(epoch)); n != 2 {
		t.Errorf("%d peers while a is retained, want 2", n)
	}
	g.Forget()
	if n := len(g.Snapshot(epoch)); n != 1 {
		t.Errorf("%d peers after Forget, want 1", n)
	}
	apply(t, g, false, Server{ID: "a"}, Server{ID: "b"})
	if after := g.Snapshot(epoch)[0]; after.Failures != 0 {
		t.Errorf("a was forgotten and came back with %d failures", after.Failures)
	}
}
