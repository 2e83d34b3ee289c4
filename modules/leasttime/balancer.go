// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package leasttime

import (
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/timing"
)

// LeastTime is nginx's least_time: the peer with the smallest estimate of its time
// for its weight, ties by a pass of smooth weighted round robin over just those.
// A pick looks at every peer.
type LeastTime struct{ Mode timing.Mode }

// NewBalancer implements peer.Method.
func (m LeastTime) NewBalancer(l *peer.List, _ peer.Balancer) peer.Balancer {
	timing.Seed(l)
	return &balancer{timing.Observer{Mode: m.Mode}}
}

type balancer struct{ timing.Observer }

// Pick implements peer.Balancer.
func (b *balancer) Pick(pass *peer.Pass) *peer.Peer {
	list, now := pass.List(), pass.Now()
	ns, mode := now.UnixNano(), b.Mode
	least := pass.Scratch()
	var score, weight int64 // of those in least
	for i := range list.Len() {
		p := list.At(i)
		if !pass.Eligible(p) {
			continue
		}
		s, w := p.Score.Value*(1+p.Conns()), p.Weight()
		if ns >= p.Score.Until || mode.Inflight {
			s = mode.EstimateAt(p, now, ns)
		}
		if len(least) > 0 {
			switch mine, best := s*weight, score*w; {
			case mine > best:
				continue
			case mine < best:
				least = least[:0]
			}
		}
		if len(least) == 0 {
			score, weight = s, w
		}
		least = append(least, p)
	}
	if len(least) == 1 {
		return least[0] // nobody's weight changes
	}
	return pass.RoundRobinAmong(least)
}
