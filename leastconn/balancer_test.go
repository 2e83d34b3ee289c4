// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package leastconn

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// plain is one server of the model: least_conn as nginx's rules describe it, two
// loops over one list, which share no code with the engine.
type plain struct {
	peer.Server
	cw, ew, conns, fails int
}

func (s *plain) eligible(tried []*plain) bool {
	return !s.Down && !s.Drain && !slices.Contains(tried, s) &&
		(s.MaxFails == 0 || s.fails < s.MaxFails) && (s.MaxConns == 0 || s.conns < s.MaxConns)
}

// pickPlain is a pick; nil if there is nothing to pick.
func pickPlain(servers, tried []*plain) *plain {
	var least *plain
	for _, s := range servers {
		if s.eligible(tried) && (least == nil || s.conns*least.Weight < least.conns*s.Weight) {
			least = s
		}
	}
	var equal []*plain
	for _, s := range servers {
		if s.eligible(tried) && s.conns*least.Weight == least.conns*s.Weight {
			equal = append(equal, s)
		}
	}
	if len(equal) > 1 { // nobody's weight changes if one is the only one
		total := 0
		least = nil
		for _, s := range equal {
			s.cw += s.ew
			total += s.ew
			s.ew = min(s.ew+1, s.Weight)
			if least == nil || s.cw > least.cw {
				least = s
			}
		}
		least.cw -= total
	}
	if least != nil {
		least.conns++
	}
	return least
}

// failed is a failure in the second in which the server was first picked: none
// is cleared, and no fail_timeout ends.
func (s *plain) failed() {
	s.fails++
	if s.MaxFails > 0 {
		s.ew = max(0, s.ew-s.Weight/s.MaxFails)
	}
}

// request is one in progress, on both sides.
type request struct {
	session *peer.Session
	lease   *peer.Lease
	on      *plain
	tried   []*plain
}

func TestPicksAndWeightsEqualThePlainLoops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(low, high int, what string) int { return rapid.IntRange(low, high).Draw(t, what) }
		var model []*plain
		config := peer.Config{Method: Method{}, Tracker: peertest.Rules{}, SingleCountsDown: true}
		for i := range draw(2, 9, "servers") {
			id := fmt.Sprint("s", i)
			s := peer.Server{
				ID: id, Address: id, Name: id, Weight: rapid.SampledFrom([]int{1, 1, 2, 3, 6}).Draw(t, "weight"),
				MaxFails: draw(0, 4, "max_fails"), FailTimeout: time.Hour, MaxConns: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "max_conns"),
				Down: draw(0, 9, "down") == 0, Drain: draw(0, 9, "drain") == 0,
			}
			config.Servers = append(config.Servers, s)
			model = append(model, &plain{Server: s, ew: s.Weight})
		}
		group := peer.NewGroup(peer.Options{})
		if err := group.Apply(config, peertest.Start); err != nil {
			t.Fatal(err)
		}
		var open []*request
		next := func(r *request) {
			lease, err := r.session.Next(peertest.Start)
			want := pickPlain(model, r.tried)
			switch {
			case err != nil && want == nil:
				return
			case err != nil || want == nil || lease.Peer().ID() != want.ID:
				t.Fatalf("Next() = %v, %v, want %v", lease, err, want)
			}
			r.lease, r.on, r.tried = lease, want, append(r.tried, want)
			open = append(open, r)
		}
		for range draw(1, 120, "steps") {
			if len(open) == 0 || draw(0, 2, "begin") > 0 {
				r := &request{session: new(peer.Session)}
				r.session.Begin(group, peer.SessionOptions{})
				next(r)
			} else {
				i := draw(0, len(open)-1, "which")
				r := open[i]
				open = slices.Delete(open, i, i+1)
				o := rapid.SampledFrom([]peer.Outcome{peer.Success, peer.Success, peer.None, peer.Next, peer.Failed}).Draw(t, "outcome")
				r.lease.Done(o, peertest.Start)
				r.on.conns--
				if o == peer.Failed {
					r.on.failed()
				}
				if o == peer.Failed || o == peer.Next {
					next(r)
				}
			}
			for i, s := range group.Snapshot(peertest.Start) {
				if m := model[i]; s.CurrentWeight != int64(m.cw) || s.EffectiveWeight != int64(m.ew) || s.Conns != int64(m.conns) {
					t.Fatalf("%s: current weight %d, effective %d, %d connections, want %d, %d, %d",
						m.ID, s.CurrentWeight, s.EffectiveWeight, s.Conns, m.cw, m.ew, m.conns)
				}
			}
		}
	})
}

func TestABusyServerIsPassedBy(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: Method{}, Servers: []peer.Server{{ID: "a"}, {ID: "b"}}}, peer.Options{})
	pick := func(want string) *peer.Lease {
		t.Helper()
		l := peertest.Pick(g, peer.SessionOptions{}, peertest.Start)
		if l.Peer().ID() != want {
			t.Fatalf("picked %s, want %s", l.Peer().ID(), want)
		}
		return l
	}
	a, b := pick("a"), pick("b")
	b.Done(peer.Success, peertest.Start)
	for range 10 {
		pick("b").Done(peer.Success, peertest.Start)
	}
	a.Done(peer.Success, peertest.Start)
	peertest.Idle(t, g)
}

func TestAServerOfTwiceTheWeightHasTwiceTheRequests(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: Method{}, Servers: []peer.Server{{ID: "a", Weight: 2}, {ID: "b"}}}, peer.Options{})
	got := ""
	for range 9 {
		got += peertest.Pick(g, peer.SessionOptions{}, peertest.Start).Peer().ID()
	}
	// They are equal at 0 and 0, 2 and 1, 4 and 2: there the round robin of 2 and 1
	// decides, for a, b and a.
	if want := "ababaaaba"; got != want {
		t.Errorf("picks = %s, want %s", got, want)
	}
}

func TestAServerThatStartsSlowlyHasFewRequestsAtFirst(t *testing.T) {
	servers := []peer.Server{{ID: "a", SlowStart: 10 * time.Second}, {ID: "b", SlowStart: 10 * time.Second}}
	g := peertest.Group(t, peer.Config{Method: Method{}, Servers: servers[:1]}, peer.Options{})
	peertest.Apply(t, g, peer.Config{Method: Method{}, Servers: servers}, peertest.Start)
	for _, c := range []struct {
		after        time.Duration
		idle, parked int // of 1,000 one after the other, and of 30 at once
	}{
		{0, 10, 1}, {5 * time.Second, 333, 10}, {10 * time.Second, 500, 15},
	} {
		now := peertest.Start.Add(c.after)
		idle, parked := 0, 0
		for range 1000 {
			if peertest.Get(g, peer.SessionOptions{}, now) == "b" {
				idle++
			}
		}
		var open []*peer.Lease
		for range 30 {
			l := peertest.Pick(g, peer.SessionOptions{}, now)
			if open = append(open, l); l.Peer().ID() == "b" {
				parked++
			}
		}
		for _, l := range open {
			l.Done(peer.Success, now)
		}
		if idle < c.idle-1 || idle > c.idle+1 || parked < c.parked-1 || parked > c.parked+1 {
			t.Errorf("after %s b had %d and %d, want about %d and %d", c.after, idle, parked, c.idle, c.parked)
		}
	}
}
