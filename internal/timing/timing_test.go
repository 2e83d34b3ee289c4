// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

var t0 = peertest.Start

const ms = time.Millisecond

// first is a method that always picks the first peer and observes it.
type first struct{ Mode Mode }

func (m first) NewBalancer(l *peer.List, _ peer.Balancer) peer.Balancer {
	Seed(l)
	return firstBalancer{Observer(m)}
}

type firstBalancer struct{ Observer }

func (b firstBalancer) Pick(pass *peer.Pass) *peer.Peer { return pass.List().At(0) }

func one(t *testing.T, m Mode) (*peer.Group, *peer.Peer) {
	g := peertest.Group(t, peer.Config{Method: first{m}, Servers: []peer.Server{
		{ID: "a", FailTimeout: 10 * time.Second}, {ID: "b", FailTimeout: 10 * time.Second}}}, peer.Options{})
	return g, g.Peers()[0]
}

func TestAveragesAreRoundedAsNginxRoundsThem(t *testing.T) {
	var avg int64
	for _, step := range []struct{ sample, want int64 }{{100, 100}, {200, 105}, {0, 100}, {0, 95}} {
		if mix(&avg, step.sample); avg != step.want {
			t.Errorf("after %d: average = %d, want %d", step.sample, avg, step.want)
		}
	}
}

func TestOnlySuccessesAreAveraged(t *testing.T) {
	g, p := one(t, Mode{Metric: peer.LastByte})
	for _, o := range []peer.Outcome{peer.None, peer.Failed, peer.Next, peer.Stale} {
		peertest.Pick(g, peer.SessionOptions{}, t0).Done(o, t0.Add(time.Second))
	}
	if got := Of(p).Average(peer.LastByte); got != 0 {
		t.Errorf("average = %s, want none", got)
	}
	l := peertest.Pick(g, peer.SessionOptions{}, t0)
	l.Observe(peer.FirstByte, 30*ms, t0.Add(30*ms))
	l.Done(peer.Success, t0.Add(100*ms))
	if f, b := Of(p).Average(peer.FirstByte), Of(p).Average(peer.LastByte); f != 30*ms || b != 100*ms {
		t.Errorf("averages = %s, %s, want 30ms and 100ms", f, b)
	}
	// No answer: the end of the attempt says nothing of the header.
	peertest.Pick(g, peer.SessionOptions{}, t0).Done(peer.Success, t0.Add(100*ms))
	if f := Of(p).Average(peer.FirstByte); f != 30*ms {
		t.Errorf("average of the first byte = %s, want 30ms as before", f)
	}
}

// know sets what is known of a peer's last byte, in ms.
func know(p *peer.Peer, average int64) {
	Of(p).average[peer.LastByte] = average
	forget(p)
}

func TestEstimatesAreClusteredAndCountConnections(t *testing.T) {
	g, p := one(t, Mode{Metric: peer.LastByte})
	m := Mode{Metric: peer.LastByte}
	for _, c := range []struct {
		average, want int64
	}{{0, 20}, {19, 20}, {20, 40}, {39, 40}, {4999, 5000}, {5000, 5020}, {5001, 5000}, {100_000, 5000}} {
		know(p, c.average)
		if got := m.Estimate(p, t0); got != c.want {
			t.Errorf("estimate of %d ms = %d, want %d", c.average, got, c.want)
		}
	}
	know(p, 100)
	l := peertest.Pick(g, peer.SessionOptions{}, t0)
	if got := m.Estimate(p, t0); got != 240 {
		t.Errorf("estimate with one connection = %d, want 240", got)
	}
	l.Done(peer.None, t0)
}

func TestAnEstimateIsHalvedPerFailTimeoutAndASecond(t *testing.T) {
	g, p := one(t, Mode{Metric: peer.LastByte})
	peertest.Pick(g, peer.SessionOptions{}, t0).Done(peer.None, t0) // checked is t0
	Of(p).average[peer.LastByte] = 4000
	m := Mode{Metric: peer.LastByte}
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 4020}, {10 * time.Second, 4020}, {10500 * ms, 4020}, {11 * time.Second, 2020}, {22 * time.Second, 1020}, {time.Hour, 20}} {
		if got := m.Estimate(p, t0.Add(c.after)); got != c.want {
			t.Errorf("estimate after %s = %d, want %d", c.after, got, c.want)
		}
	}
}

func TestRequestsInFlightCountWithTheTimeTheyHaveWaited(t *testing.T) {
	m := Mode{Metric: peer.FirstByte, Inflight: true}
	g, p := one(t, m)
	l := peertest.Pick(g, peer.SessionOptions{}, t0)
	k := peertest.Pick(g, peer.SessionOptions{}, t0.Add(100*ms))
	// 300 and 200 ms: a mean of 250.
	if got := m.Estimate(p, t0.Add(300*ms)); got != 260*3 {
		t.Errorf("estimate = %d, want %d", got, 260*3)
	}
	l.Observe(peer.FirstByte, 300*ms, t0.Add(300*ms))
	if got := Of(p).Average(peer.FirstByte); got != 300*ms {
		t.Errorf("average = %s, want 300ms at once", got)
	}
	x := Of(p)
	if x.running != 1 || x.spent != 200 {
		t.Errorf("running %d, spent %d ms, want 1 and 200", x.running, x.spent)
	}
	l.Done(peer.Success, t0.Add(400*ms))
	if x.running != 1 || x.average[peer.FirstByte] != 300 {
		t.Errorf("the end of an attempt whose time was known: running %d, average %d, want no change", x.running, x.average[peer.FirstByte])
	}
	k.Done(peer.Failed, t0.Add(500*ms))
	if x.running != 0 || x.spent != 0 {
		t.Errorf("running %d, spent %d at the end, want nothing", x.running, x.spent)
	}
}

// CASES 11: 50 and 30 ms make 40.
func TestANewServerStartsWithTheMeanOfTheOthers(t *testing.T) {
	cfg := peer.Config{Method: first{Mode{Metric: peer.LastByte}}, Servers: []peer.Server{{ID: "a"}, {ID: "b"}}}
	g := peertest.Group(t, cfg, peer.Options{})
	peers := g.Peers()
	Of(peers[0]).average[peer.LastByte], Of(peers[1]).average[peer.LastByte] = 50, 30
	Of(peers[0]).Sample(50*ms, t0)
	Of(peers[1]).Sample(30*ms, t0)
	cfg.Servers = append(cfg.Servers, peer.Server{ID: "c", FailTimeout: time.Hour})
	peertest.Apply(t, g, cfg, t0)
	peers = g.Peers()
	c := Of(peers[2])
	if got := c.Average(peer.LastByte); got != 40*ms {
		t.Errorf("average of the new one = %s, want 40ms", got)
	}
	if got := c.Cost(t0); got < .0399 || got > .0401 {
		t.Errorf("cost of the new one = %v, want 0.04", got)
	}
	if got := (Mode{Metric: peer.LastByte}).Estimate(peers[2], t0); got != 60 {
		t.Errorf("estimate = %d, want 60", got)
	}
	if a, b := Of(peers[0]).Average(peer.LastByte), Of(peers[1]).Average(peer.LastByte); a != 50*ms || b != 30*ms {
		t.Errorf("averages of the others = %s, %s, want them unchanged", a, b)
	}
}

func TestTheCostJumpsUpAndCreepsDown(t *testing.T) {
	var x Times
	x.Sample(10*ms, t0)
	x.Sample(200*ms, t0)
	if got := x.Cost(t0); got != .2 {
		t.Errorf("cost after a peak = %v, want 0.2", got)
	}
	x.Sample(10*ms, t0.Add(time.Second))
	if got := x.Cost(t0.Add(time.Second)); got < .17 || got > .19 {
		t.Errorf("cost a second after the peak = %v, want about 0.18", got)
	}
	if got := x.Cost(t0.Add(time.Minute)); got > .001 {
		t.Errorf("cost after a minute idle = %v, want it faded", got)
	}
}

func TestAForeignMemoryIsReplaced(t *testing.T) {
	m := Mode{Metric: peer.FirstByte, Inflight: true}
	g, p := one(t, m)
	l := peertest.Pick(g, peer.SessionOptions{}, t0)
	p.Memo = "another method was here"
	l.Done(peer.Success, t0)
	if got := Of(p).running; got != 0 {
		t.Errorf("running = %d, want 0", got)
	}
}
