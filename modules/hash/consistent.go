// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"hash/crc32"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Consistent is nginx's "hash ... consistent", compatible with Ketama as
// Cache::Memcached::Fast has it: every server has 160 points for each unit of
// weight on a ring of CRC-32 values, a key belongs to the first point from its
// own value on, and a peer that cannot be picked leaves it to the next points.
// When a server is added or removed only its own keys move.
type Consistent struct {
	// BalanceFactor, if not 0, is how many times the mean of the leases for its
	// weight a peer may hold, at least 1; who would be one too many goes to the
	// next on the ring (Mirrokni, Thorup, Zadimoghaddam: Consistent hashing with
	// bounded loads).
	BalanceFactor float64
}

// NewBalancer implements peer.Method. It changes and keeps the ring it made
// before.
func (m Consistent) NewBalancer(l *peer.List, old peer.Balancer) peer.Balancer {
	var c *consistent
	switch b := old.(type) {
	case *consistent:
		c = b
	case *bounded:
		c = b.consistent
	default:
		c = &consistent{ring: ring{byLine: make(map[string]*node)}}
	}
	if !l.Backup() { // backups are reached by round robin
		c.ring.update(l)
	}
	if m.BalanceFactor == 0 {
		return c
	}
	b, ok := old.(*bounded)
	if !ok {
		b = &bounded{consistent: c}
	}
	b.factor = m.BalanceFactor
	return b
}

type consistent struct{ ring ring }

// walk is the memory of a session's way along the ring.
type walk struct {
	at      *uint64 // value of the point where the next try begins
	key     *uint64 // value of the key
	started *uint64
	misses  *uint64
}

func walkOf(pass *peer.Pass) walk {
	s := pass.State()
	return walk{&s[0], &s[1], &s[2], &s[3]}
}

// ringless reports whether the pick is one of round robin.
func ringless(pass *peer.Pass, w walk) bool {
	return pass.Key() == "" || pass.List().Backup() || pass.List().Len() < 2 || *w.misses > maxMisses
}

// begin returns where the session stands on the ring.
func (c *consistent) begin(pass *peer.Pass, w walk) cursor {
	if *w.started == 0 {
		*w.started = 1
		*w.key = uint64(crc32.ChecksumIEEE(bytesOf(pass.Key())))
		*w.at = *w.key
	}
	return c.ring.seek(uint32(*w.at))
}

// Pick implements peer.Balancer. A retry goes on from the point of the try
// before, whose peer is not eligible any more.
func (c *consistent) Pick(pass *peer.Pass) *peer.Peer {
	w := walkOf(pass)
	if ringless(pass, w) {
		return pass.RoundRobin()
	}
	for at := c.begin(pass, w); ; at.next() {
		point := at.at()
		*w.at = uint64(point.value)
		if p := c.ring.nodes[point.node].pick(pass, *w.key, nil); p != nil {
			return p
		}
		if *w.misses++; *w.misses > maxMisses {
			return pass.RoundRobin()
		}
	}
}

// pick chooses among the peers of one server string, most often one.
func (n *node) pick(pass *peer.Pass, hash uint64, room func(*peer.Peer) bool) *peer.Peer {
	ok := func(p *peer.Peer) bool {
		return pass.Eligible(p) && pass.Admits(p, hash) && (room == nil || room(p))
	}
	if len(n.peers) == 1 {
		p := n.peers[0]
		if !ok(p) {
			return nil
		}
		// Also a pass over one peer lets its effective weight recover.
		return pass.RoundRobinAmong(append(pass.Scratch(), p))
	}
	some := pass.Scratch()
	for _, p := range n.peers {
		if ok(p) {
			some = append(some, p)
		}
	}
	return pass.RoundRobinAmong(some)
}
