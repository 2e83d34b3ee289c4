// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"slices"
	"strings"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// ConnStats implements exchange.ConnCounter. In a group it covers all handlers
// of the group.
func (t *Transport) ConnStats() []exchange.ConnStats { return t.cache.ConnStats() }

// ConnStats implements exchange.ConnCounter. Servers that have left the group,
// and settings that no handler has any more, are not counted.
func (ca *cache) ConnStats() []exchange.ConnStats {
	by := make(map[string]*exchange.ConnStats)
	ca.mu.Lock()
	for k, b := range ca.buckets {
		address := k.network + "/" + k.address
		s := by[address]
		if s == nil {
			s = &exchange.ConnStats{Address: address}
			by[address] = s
		}
		s.Idle += b.idle.n
		s.Created += b.created
		s.Reused += b.reused
	}
	ca.mu.Unlock()
	out := make([]exchange.ConnStats, 0, len(by))
	for _, s := range by {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b exchange.ConnStats) int { return strings.Compare(a.Address, b.Address) })
	return out
}
