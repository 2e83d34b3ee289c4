// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package passivehealth

import (
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// pair is a group of two servers with the tracker: a, which every request is
// bound to, and b, which answers while a may not be picked. What nginx did in
// longer histories is replayed in modules.
type pair struct {
	t     *testing.T
	group *peer.Group
}

func newPair(t *testing.T, a peer.Server) *pair {
	t.Helper()
	a.ID = "a"
	a.Route = "a"
	return &pair{t, peertest.Group(t, peer.Config{
		Method: peertest.RoundRobin{}, Tracker: new(Tracker), Servers: []peer.Server{a, {ID: "b"}},
	}, peer.Options{})}
}

// seconds is the time so long after the beginning.
func seconds(s float64) time.Time {
	return peertest.Start.Add(time.Duration(s * float64(time.Second)))
}

// pick begins a request, which want is to get.
func (p *pair) pick(at float64, want string) *peer.Lease {
	p.t.Helper()
	l := peertest.Pick(p.group, peer.SessionOptions{Hint: "a"}, seconds(at))
	if l == nil || l.Peer().ID() != want {
		p.t.Fatalf("at %v s: Pick() = %v, want %s", at, l, want)
	}
	return l
}

// ask is a request that a answers at once; afterwards a has so many failures.
func (p *pair) ask(at float64, o peer.Outcome, fails int) {
	p.t.Helper()
	p.pick(at, "a").Done(o, seconds(at))
	if got := p.a().Fails; got != fails {
		p.t.Fatalf("at %v s, after a %s: %d fails, want %d", at, o, got, fails)
	}
}

// out is a request while a may not be picked.
func (p *pair) out(at float64) {
	p.t.Helper()
	p.pick(at, "b").Done(peer.Success, seconds(at))
}

func (p *pair) a() peer.State { return p.group.Snapshot(peertest.Start)[0] }

// CASES 19.
func TestFailuresAddUpAlthoughSuccessesLieBetween(t *testing.T) {
	p := newPair(t, peer.Server{MaxFails: 3, FailTimeout: 10 * time.Second})
	p.ask(-20, peer.Success, 0)
	p.ask(0, peer.Failed, 1)
	p.ask(4, peer.Success, 1)
	p.ask(8, peer.Failed, 2)
	p.ask(12, peer.Success, 2)
	p.ask(16, peer.Failed, 3)
	p.out(16)
	p.out(26)
}

func TestOnlyASuccessThatWasPickedAfterAQuietFailTimeoutClearsTheFailures(t *testing.T) {
	p := newPair(t, peer.Server{MaxFails: 2, FailTimeout: 10 * time.Second})
	p.ask(0, peer.Failed, 1)
	p.ask(1, peer.Success, 1)
	early := p.pick(10, "a") // fail_timeout is not yet over
	early.Done(peer.Success, seconds(15))
	if f := p.a().Fails; f != 1 {
		t.Errorf("after a success that was picked too early: %d fails, want 1", f)
	}
	p.ask(10.001, peer.None, 1)
	p.ask(10.002, peer.Success, 0)

	p.ask(21, peer.Failed, 1)
	p.ask(32, peer.Next, 0) // another server is asked, but the answer was one
	p.ask(32, peer.Failed, 1)
	p.ask(32, peer.Success, 1) // picked in the moment of the failure, not after
}

func TestOneRequestProbesAfterEachFailTimeout(t *testing.T) {
	p := newPair(t, peer.Server{MaxFails: 1, FailTimeout: 10 * time.Second})
	p.ask(0, peer.Failed, 1)
	p.out(10)
	probe := p.pick(10.001, "a")
	p.out(10.001)
	p.out(20.001)
	second := p.pick(20.002, "a") // the first has not ended for all of a fail_timeout
	p.out(20.002)
	second.Done(peer.Failed, seconds(21))
	probe.Done(peer.Success, seconds(22)) // it was picked before that failure
	p.out(31)
	third := p.pick(31.001, "a")
	third.Done(peer.Success, seconds(32))
	p.ask(32, peer.Success, 0)
	p.ask(32, peer.Success, 0)
}

func TestAFailureLowersTheEffectiveWeightByItsPart(t *testing.T) {
	for _, c := range []struct {
		weight, maxFails int
		want             []int64 // after failures one on top of the other
	}{
		{4, 2, []int64{2, 0, 0}},
		{5, 3, []int64{4, 3, 2, 1, 0, 0}},
		{1, 2, []int64{1, 1}},
		{7, 0, []int64{7, 7}},
	} {
		p := newPair(t, peer.Server{Weight: c.weight, MaxFails: c.maxFails, FailTimeout: time.Second})
		var leases []*peer.Lease // all picked before the first failure
		for range c.want {
			leases = append(leases, p.pick(0, "a"))
		}
		for i, want := range c.want {
			leases[i].Done(peer.Failed, seconds(0))
			if got := p.a(); got.EffectiveWeight != want || got.Fails != i+1 {
				t.Errorf("weight=%d max_fails=%d, failure %d: effective weight %d, %d fails, want %d and %d",
					c.weight, c.maxFails, i+1, got.EffectiveWeight, got.Fails, want, i+1)
			}
		}
		if c.maxFails == 0 {
			p.ask(0, peer.Success, len(c.want))
		}
	}
}

func TestANewConfigurationIsAppliedToTheFailuresThatThereAre(t *testing.T) {
	p := newPair(t, peer.Server{MaxFails: 3, FailTimeout: 10 * time.Second})
	p.ask(0, peer.Failed, 1)
	p.ask(0, peer.Failed, 2)
	for _, c := range []struct {
		maxFails int
		want     string
	}{{2, "b"}, {0, "a"}, {1, "b"}, {3, "a"}} {
		peertest.Apply(t, p.group, peer.Config{
			Method: peertest.RoundRobin{}, Tracker: new(Tracker),
			Servers: []peer.Server{{ID: "a", Route: "a", MaxFails: c.maxFails, FailTimeout: 10 * time.Second}, {ID: "b"}},
		}, seconds(1))
		p.pick(1, c.want).Done(peer.None, seconds(1))
	}
}

func TestAChangedFailTimeoutCountsFromThen(t *testing.T) {
	p := newPair(t, peer.Server{MaxFails: 2, FailTimeout: 10 * time.Second})
	p.ask(0, peer.Failed, 1)
	for _, c := range []struct {
		timeout time.Duration
		at      float64
		fails   int
	}{{20 * time.Second, 12, 1}, {12 * time.Second, 12, 1}, {11 * time.Second, 12, 0}} {
		peertest.Apply(t, p.group, peer.Config{
			Method: peertest.RoundRobin{}, Tracker: new(Tracker),
			Servers: []peer.Server{{ID: "a", Route: "a", MaxFails: 2, FailTimeout: c.timeout}, {ID: "b"}},
		}, seconds(1))
		p.ask(c.at, peer.Success, c.fails)
	}
}
