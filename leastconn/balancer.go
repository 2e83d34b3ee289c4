// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package leastconn

import "github.com/caddy-upstream/caddy-upstream/internal/peer"

// balancer picks the peer with the fewest connections for its weight; among
// equals it lets a pass of smooth weighted round robin decide, over just those.
// Connections are compared as conns_a * weight_b < conns_b * weight_a, so that
// nothing is rounded.
type balancer struct{}

// Pick implements peer.Balancer. It looks at every peer of the list.
func (balancer) Pick(pass *peer.Pass) *peer.Peer {
	list := pass.List()
	least := pass.Scratch()
	var conns, weight int64 // of those in least
	for i := range list.Len() {
		p := list.At(i)
		if !pass.Eligible(p) {
			continue
		}
		c, w := p.Conns(), p.Weight()
		if len(least) > 0 {
			switch mine, best := c*weight, conns*w; {
			case mine > best:
				continue
			case mine < best:
				least = least[:0]
			}
		}
		if len(least) == 0 {
			conns, weight = c, w
		}
		least = append(least, p)
	}
	if len(least) == 1 {
		return least[0] // nobody's weight changes
	}
	return pass.RoundRobinAmong(least)
}
