// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package leasttime

import (
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/timing"
)

// EWMA chooses the better of two peers drawn at random by their weights: the
// one with the smaller cost, a peak-sensitive moving average of its times, times
// the leases it would have, for its weight. A pick costs the same however many
// peers there are.
type EWMA struct{ Metric peer.Metric }

// NewBalancer implements peer.Method.
func (m EWMA) NewBalancer(l *peer.List, _ peer.Balancer) peer.Balancer {
	timing.Seed(l)
	return &ewma{metric: m.Metric}
}

type ewma struct{ metric peer.Metric }

// draws is how often it draws to find two peers that can be picked before round
// robin chooses.
const draws = 20

// Pick implements peer.Balancer.
func (e *ewma) Pick(pass *peer.Pass) *peer.Peer {
	list := pass.List()
	if list.Len() < 2 {
		return pass.RoundRobin()
	}
	var a *peer.Peer
	for range draws {
		p := list.AtWeight(int64(pass.IntN(int(list.TotalWeight()))))
		switch {
		case p == a || !pass.Eligible(p) || !pass.AdmitsRandom(p):
		case a == nil:
			a = p
		default:
			if e.score(a, pass.Now())*float64(p.Weight()) < e.score(p, pass.Now())*float64(a.Weight()) {
				return a
			}
			return p
		}
	}
	return pass.RoundRobin()
}

func (e *ewma) score(p *peer.Peer, now time.Time) float64 {
	return timing.Of(p).Cost(now) * float64(1+p.Conns())
}

// Started implements peer.Observer.
func (e *ewma) Started(*peer.Lease, time.Time) {}

// Known implements peer.Observer.
func (e *ewma) Known(l *peer.Lease, m peer.Metric, now time.Time) {
	if m == e.metric {
		timing.Of(l.Peer()).Sample(l.Time(m), now)
	}
}

// Ended implements peer.Observer. An attempt that failed counts with the time it
// took if that makes the peer look worse, never if it makes it look better: to
// fail fast is no merit.
func (e *ewma) Ended(l *peer.Lease, o peer.Outcome, now time.Time) {
	t, d := timing.Of(l.Peer()), l.Time(peer.LastByte)
	switch {
	case o == peer.Failed || o == peer.Stale:
		if d.Seconds() > t.Cost(now) {
			t.Sample(d, now)
		}
	case o == peer.Success && e.metric == peer.LastByte:
		t.Sample(d, now)
	}
}
