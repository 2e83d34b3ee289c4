// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// client is a session that may have to wait.
type client struct {
	session peer.Session
	waiter  peer.Waiter
	lease   *peer.Lease
	err     error
	ready   int
}

func ask(g *peer.Group, o peer.SessionOptions, now time.Time) *client {
	c := new(client)
	c.waiter.Ready = func() {
		c.ready++
		c.lease = c.waiter.Leave()
	}
	c.session.Begin(g, o)
	c.lease, c.err = c.session.NextOrWait(&c.waiter, now)
	return c
}

func limited(t *testing.T, queue int, conns ...int) *peer.Group {
	cfg := peer.Config{Method: peertest.RoundRobin{}, Queue: queue}
	for i, n := range conns {
		cfg.Servers = append(cfg.Servers, peer.Server{ID: string(rune('a' + i)), MaxConns: n, MaxFails: 1, FailTimeout: 10 * time.Second})
	}
	return peertest.Group(t, cfg, peer.Options{})
}

func TestASlotThatIsGivenBackGoesToTheFirstInTheQueue(t *testing.T) {
	g := limited(t, 10, 1)
	clients := make([]*client, 5)
	for i := range clients {
		clients[i] = ask(g, peer.SessionOptions{}, t0)
	}
	if clients[0].err != nil {
		t.Fatal(clients[0].err)
	}
	if got := g.Status(); got.Waiting != 4 || got.QueueLimit != 10 {
		t.Errorf("Status() = %+v, want 4 of 10 waiting", got)
	}
	for i, c := range clients {
		for j, d := range clients {
			if has := d.lease != nil; has != (j <= i) {
				t.Fatalf("before request %d ends, request %d has a lease: %v", i, j, has)
			}
		}
		newcomer := ask(g, peer.SessionOptions{}, t0)
		if newcomer.err != peer.ErrQueued {
			t.Fatalf("a newcomer got %v, want ErrQueued", newcomer.err)
		}
		if l := newcomer.waiter.Leave(); l != nil {
			t.Fatal("a newcomer overtook the queue")
		}
		c.lease.Done(peer.Success, t0)
	}
	for i, c := range clients[1:] {
		if c.ready != 1 || c.err != peer.ErrQueued {
			t.Errorf("request %d: %v, told %d times, want ErrQueued and once", i+1, c.err, c.ready)
		}
	}
	peertest.Idle(t, g)
}

func TestAFullQueueRefusesAtOnceAndCountsNothing(t *testing.T) {
	g := limited(t, 2, 1)
	var errs []error
	for range 5 {
		errs = append(errs, ask(g, peer.SessionOptions{}, t0).err)
	}
	want := []error{nil, peer.ErrQueued, peer.ErrQueued, peer.ErrQueueFull, peer.ErrQueueFull}
	if fmt.Sprint(errs) != fmt.Sprint(want) {
		t.Errorf("errors = %v, want %v", errs, want)
	}
	if s := state(t, g, "a"); s.Failures != 0 || s.Fails != 0 {
		t.Errorf("failures = %d, want none", s.Failures)
	}
}

func TestAGroupWithoutQueueLetsNobodyWait(t *testing.T) {
	g := limited(t, 0, 1)
	ask(g, peer.SessionOptions{}, t0)
	if c := ask(g, peer.SessionOptions{}, t0); c.err != peer.ErrNoPeers {
		t.Errorf("error = %v, want ErrNoPeers", c.err)
	}
}

func TestWhoLeavesTheQueueGetsNothing(t *testing.T) {
	g := limited(t, 10, 1)
	first, second, third := ask(g, peer.SessionOptions{}, t0), ask(g, peer.SessionOptions{}, t0), ask(g, peer.SessionOptions{}, t0)
	if l := second.waiter.Leave(); l != nil {
		t.Fatalf("Leave() = %v, want nothing", l)
	}
	first.lease.Done(peer.None, t0)
	if second.lease != nil || second.ready != 0 || third.lease == nil {
		t.Error("want the slot to go to the third")
	}
	third.lease.Done(peer.Success, t0)
	peertest.Idle(t, g)
}

// TestALeaseThatComesWithTheCancellationIsNotLost: Leave hands it over, so that
// whoever leaves can give it back.
func TestALeaseThatComesWithTheCancellationIsNotLost(t *testing.T) {
	g := limited(t, 10, 1)
	first := ask(g, peer.SessionOptions{}, t0)
	var w peer.Waiter
	w.Ready = func() {}
	var s peer.Session
	s.Begin(g, peer.SessionOptions{})
	if _, err := s.NextOrWait(&w, t0); err != peer.ErrQueued {
		t.Fatal(err)
	}
	first.lease.Done(peer.Success, t0)
	l := w.Leave()
	if l == nil {
		t.Fatal("Leave() = nil, want the lease")
	}
	l.Done(peer.None, t0)
	peertest.Idle(t, g)
}

func TestTheQueueIsServedByWhateverMakesAPeerAvailable(t *testing.T) {
	cases := []struct {
		name string
		do   func(t *testing.T, g *peer.Group, open *peer.Lease)
	}{
		{"the end of a time out, when looked at", func(t *testing.T, g *peer.Group, open *peer.Lease) {
			open.Done(peer.Failed, t0)
			next := g.Wake(t0)
			if !next.After(at(10*time.Second)) || next.After(at(11*time.Second)) {
				t.Errorf("Wake() = %v, want just after 10 s", next.Sub(t0))
			}
			g.Wake(next)
		}},
		{"a server that is added", func(t *testing.T, g *peer.Group, _ *peer.Lease) {
			peertest.Apply(t, g, peer.Config{Method: peertest.RoundRobin{}, Queue: 10, Servers: []peer.Server{
				{ID: "a", MaxConns: 1}, {ID: "b", Down: true}, {ID: "c"}}}, t0)
		}},
		{"a higher limit", func(t *testing.T, g *peer.Group, _ *peer.Lease) {
			peertest.Apply(t, g, peer.Config{Method: peertest.RoundRobin{}, Queue: 10, Servers: []peer.Server{
				{ID: "a", MaxConns: 2}, {ID: "b", Down: true}}}, t0)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Queue: 10, SingleCountsDown: true, Servers: []peer.Server{
				{ID: "a", MaxConns: 1, MaxFails: 1, FailTimeout: 10 * time.Second}, {ID: "b", Down: true}}}, peer.Options{})
			open := ask(g, peer.SessionOptions{}, t0).lease
			w := ask(g, peer.SessionOptions{}, t0)
			if w.err != peer.ErrQueued {
				t.Fatal(w.err)
			}
			c.do(t, g, open)
			if w.lease == nil {
				t.Error("the waiting session got no peer")
			}
		})
	}
}

// TestARetryMayWaitForAPeerItHasNotTried: the tried set stays, and a waiting
// session does not block others.
func TestARetryMayWaitForAPeerItHasNotTried(t *testing.T) {
	g := limited(t, 10, 1, 1)
	first := ask(g, peer.SessionOptions{}, t0)
	second := ask(g, peer.SessionOptions{}, t0)
	first.lease.Done(peer.Next, t0)
	retry, err := first.session.NextOrWait(&first.waiter, t0)
	if retry != nil || err != peer.ErrQueued {
		t.Fatalf("NextOrWait() = %v, %v, want to wait for b", retry, err)
	}
	other := ask(g, peer.SessionOptions{}, t0)
	if other.err != nil || other.lease.Peer().ID() != "a" {
		t.Fatalf("another request got %v, want a, which is free", other.err)
	}
	first.lease = nil
	second.lease.Done(peer.Success, t0)
	if first.lease == nil || first.lease.Peer().ID() != "b" {
		t.Fatalf("the retry got %v, want b", first.lease)
	}
	first.lease.Done(peer.Success, t0)
	other.lease.Done(peer.Success, t0)
	peertest.Idle(t, g)
}

func TestTheErrorOfARetryBudgetIsOneOfNoPeers(t *testing.T) {
	if !errors.Is(peer.ErrRetryBudget, peer.ErrNoPeers) {
		t.Error("ErrRetryBudget does not wrap ErrNoPeers")
	}
}
