// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"math"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// bounded is consistent with a limit on what a peer holds.
type bounded struct {
	*consistent
	factor float64
	open   int // leases that this balancer was told of
}

// Started implements peer.Observer.
func (b *bounded) Started(*peer.Lease, time.Time) { b.open++ }

// Known implements peer.Observer.
func (b *bounded) Known(*peer.Lease, peer.Metric, time.Time) {}

// Ended implements peer.Observer.
func (b *bounded) Ended(*peer.Lease, peer.Outcome, time.Time) { b.open-- }

// Pick implements peer.Balancer.
func (b *bounded) Pick(pass *peer.Pass) *peer.Peer {
	w := walkOf(pass)
	if *w.misses > maxMisses {
		return b.emptiest(pass)
	}
	if ringless(pass, w) {
		return pass.RoundRobin()
	}
	_, up := pass.List().Up()
	share := b.factor * float64(b.open+1) / float64(max(1, up))
	room := func(p *peer.Peer) bool {
		most := math.Ceil(share * float64(p.Server().Weight))
		return float64(p.Conns()) < most
	}
	for at := b.begin(pass, w); ; at.next() {
		point := at.at()
		*w.at = uint64(point.value)
		if p := b.ring.nodes[point.node].pick(pass, *w.key, room); p != nil {
			return p
		}
		if *w.misses++; *w.misses > maxMisses {
			return b.emptiest(pass)
		}
	}
}

// emptiest falls back to the peers with the fewest leases for their weight,
// and round robin among those: one of them has room if any has.
func (b *bounded) emptiest(pass *peer.Pass) *peer.Peer {
	list, least := pass.List(), pass.Scratch()
	for i := range list.Len() {
		p := list.At(i)
		if !pass.Eligible(p) {
			continue
		}
		if len(least) > 0 {
			mine, best := p.Conns()*least[0].Weight(), least[0].Conns()*p.Weight()
			if mine > best {
				continue
			}
			if mine < best {
				least = least[:0]
			}
		}
		least = append(least, p)
	}
	return pass.RoundRobinAmong(least)
}
