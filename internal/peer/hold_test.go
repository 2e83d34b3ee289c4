// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// leaving is a group of a, b and c, each with 10 s to finish, and its changes.
func leaving(t *testing.T, edit func(*peer.Config)) (*peer.Group, func(now time.Time, edit func(*peer.Config)), *[]string) {
	t.Helper()
	events := new([]string)
	g := peer.NewGroup(peer.Options{Name: "g", OnEvent: func(e peer.Event) {
		if e.Kind == peer.ServerClosed {
			*events = append(*events, fmt.Sprint(e.Peer.ID(), e.Open))
		}
	}})
	config := peer.Config{Method: peertest.RoundRobin{}, Tracker: peertest.Rules{}}
	for _, id := range []string{"a", "b", "c"} {
		config.Servers = append(config.Servers, peer.Server{ID: id, Address: id, Weight: 1, CloseAfter: 10 * time.Second})
	}
	change := func(now time.Time, edit func(*peer.Config)) {
		t.Helper()
		config.Servers = slices.Clone(config.Servers)
		if edit != nil {
			edit(&config)
		}
		if err := g.Apply(config, now); err != nil {
			t.Fatal(err)
		}
	}
	change(t0, edit)
	return g, change, events
}

func TestADrainedPeerClosesWhatItHoldsWhenItsTimeIsOver(t *testing.T) {
	g, change, events := leaving(t, nil)
	closed := map[string]int{}
	hold := func(s peer.SessionOptions, name string) *peer.Lease {
		l := peertest.Pick(g, s, t0)
		l.Hold(aborter(func() { closed[name]++ }), false)
		return l
	}
	first, second := hold(peer.SessionOptions{}, "a1"), hold(peer.SessionOptions{}, "b1")
	a := first.Peer()
	ended := hold(peer.SessionOptions{Hint: a.SID()}, "a2")
	if next := g.NextClose(t0); !next.IsZero() {
		t.Errorf("NextClose() = %v while all serve, want never", next)
	}
	change(at(time.Second), func(c *peer.Config) { c.Servers[0].Drain = true })
	if next := g.NextClose(at(2 * time.Second)); !next.Equal(at(11 * time.Second)) {
		t.Errorf("NextClose() = %v, want ten seconds after the drain", next)
	}
	ended.Done(peer.Success, t0)
	bound := hold(peer.SessionOptions{Hint: a.SID()}, "a3")
	if bound.Peer() != a {
		t.Errorf("a bound session reaches %s while a drains, want a", bound.Peer().ID())
	}
	change(at(5*time.Second), func(c *peer.Config) { c.Servers[1].Weight = 2 }) // another server
	if g.CloseOverdue(at(10 * time.Second)); len(closed) > 0 {
		t.Errorf("closed %v before the time is over", closed)
	}
	if next := g.CloseOverdue(at(11 * time.Second)); !next.IsZero() || len(closed) != 2 || closed["a1"] != 1 || closed["a3"] != 1 {
		t.Errorf("closed %v, next %v; want both that a still held, once, and nothing more to do", closed, next)
	}
	if l := peertest.Pick(g, peer.SessionOptions{Hint: a.SID()}, at(12*time.Second)); l.Peer() == a {
		t.Error("a bound session reaches a after its time")
	} else {
		l.Done(peer.None, t0)
	}
	if s := g.Snapshot(t0)[0]; !s.Overdue || !s.CloseBy.Equal(at(11*time.Second)) {
		t.Errorf("state %+v, want it to be overdue since 11 s", s)
	}
	g.CloseOverdue(at(13 * time.Second))
	if want := []string{"a2"}; !slices.Equal(*events, want) || closed["a1"] != 1 {
		t.Errorf("events %v, closed %v; want %v and nothing twice", *events, closed, want)
	}
	change(at(14*time.Second), func(c *peer.Config) { c.Servers[0].Drain = false })
	if l := peertest.Pick(g, peer.SessionOptions{Hint: a.SID()}, at(15*time.Second)); l.Peer() != a {
		t.Errorf("enabled again, a bound session reaches %s, want a", l.Peer().ID())
	} else {
		l.Done(peer.None, t0)
	}
	for _, l := range []*peer.Lease{first, second, bound} {
		l.Done(peer.Success, t0)
	}
	peertest.Idle(t, g)
}

func TestTheTimeOfADrainedPeerCanBeChangedAndBeginsOnce(t *testing.T) {
	g, change, events := leaving(t, func(c *peer.Config) { c.Servers[0].CloseAfter = 0 })
	l := peertest.Pick(g, peer.SessionOptions{}, t0)
	closed := 0
	l.Hold(aborter(func() { closed++ }), false)
	change(at(time.Second), func(c *peer.Config) { c.Servers[0].Drain = true })
	if next := g.NextClose(at(time.Second)); !next.IsZero() {
		t.Errorf("NextClose() = %v without a time, want never", next)
	}
	change(at(2*time.Second), func(c *peer.Config) { c.Servers[0].CloseAfter = 20 * time.Second })
	change(at(15*time.Second), func(c *peer.Config) { c.Servers = c.Servers[1:] }) // drained, then removed
	if next := g.CloseOverdue(at(20 * time.Second)); !next.Equal(at(21*time.Second)) || closed != 0 {
		t.Errorf("next %v, %d closed; want 20 s after the drain began", next, closed)
	}
	g.CloseAfter(l.Peer(), time.Second)
	if next := g.NextClose(at(20 * time.Second)); !next.Equal(at(20 * time.Second)) {
		t.Errorf("NextClose() = %v after the time became shorter, want now", next)
	}
	g.CloseOverdue(at(20 * time.Second))
	if closed != 1 || !slices.Equal(*events, []string{"a1"}) {
		t.Errorf("%d closed, events %v", closed, *events)
	}
	// Who held a but had not said how it ends is ended when it does.
	l.Hold(aborter(func() { closed++ }), false)
	if closed != 2 {
		t.Errorf("a late Hold is not aborted")
	}
	l.Done(peer.None, at(20*time.Second))
	if s := g.Snapshot(t0); len(s) != 2 {
		t.Errorf("%d peers, want b and c", len(s))
	}
}

// TestHoldersAreListedWhileTheirLeasesAreOpen opens and ends leases in any order
// from many goroutines, and closes what is left.
func TestHoldersAreListedWhileTheirLeasesAreOpen(t *testing.T) {
	g, change, events := leaving(t, nil)
	var mu sync.Mutex
	open := map[*peer.Lease]bool{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			var mine []*peer.Lease
			for i := range 300 {
				l := peertest.Pick(g, peer.SessionOptions{}, t0)
				mu.Lock()
				open[l] = false
				mu.Unlock()
				l.Hold(aborter(func() { mu.Lock(); open[l] = true; mu.Unlock() }), false)
				mine = append(mine, l)
				if i%3 != 0 {
					k := (i * (w + 1)) % len(mine)
					mine[k].Done(peer.Success, t0)
					mu.Lock()
					delete(open, mine[k])
					mu.Unlock()
					mine = slices.Delete(mine, k, k+1)
				}
			}
		})
	}
	wg.Wait()
	change(t0, func(c *peer.Config) {
		for i := range c.Servers {
			c.Servers[i].Down = true
		}
	})
	g.CloseOverdue(at(10 * time.Second))
	for l, aborted := range open {
		if !aborted {
			t.Fatalf("an open lease on %s was not closed", l.Peer().ID())
		}
	}
	for l := range open {
		l.Done(peer.Success, t0)
	}
	sum := 0
	for _, e := range *events {
		var n int
		_, _ = fmt.Sscan(strings.TrimLeft(e, "abc"), &n)
		sum += n
	}
	if sum != 800 {
		t.Errorf("events %v, want 800 in all", *events)
	}
	peertest.Idle(t, g)
}

// BenchmarkHold is what it costs a request that it can be closed, beside
// BenchmarkPickAndDone.
func BenchmarkHold(b *testing.B) {
	for _, n := range []int{2, 10_000} {
		g := sized(b, peertest.RoundRobin{}, n)
		once := func(s *peer.Session, a peer.Aborter) {
			*s = peer.Session{}
			s.Begin(g, peer.SessionOptions{})
			l, err := s.Next(t0)
			if err != nil {
				panic(err)
			}
			if a != nil {
				l.Hold(a, false)
			}
			l.Done(peer.Success, t0)
		}
		for name, a := range map[string]peer.Aborter{"with": aborter(func() {}), "without": nil} {
			b.Run(fmt.Sprintf("%s/peers=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				s := new(peer.Session)
				for b.Loop() {
					once(s, a)
				}
			})
			b.Run(fmt.Sprintf("%s/parallel/peers=%d", name, n), func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					s := new(peer.Session)
					for pb.Next() {
						once(s, a)
					}
				})
			})
		}
	}
}
