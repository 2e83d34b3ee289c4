// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// ring is the circle of points of one list. It lies in buckets by the leading
// bits of the value, so that a server comes and goes at the cost of its own
// points, however many others there are.
type ring struct {
	shift   uint // a point's bucket is its value >> shift
	buckets [][]point
	byLine  map[string]*node
	nodes   []*node // by number; nil where one is free
	free    []uint32
	total   int    // points before they are cut
	cut     int    // as a power of two
	epoch   uint64 // of the last update
}

// point belongs to a server string. Of equal values the first counts.
type point struct {
	value uint32
	node  uint32 // a number: the collector need not look at a million points
}

// node is a server string with the peers that share it.
type node struct {
	ring   *ring
	number uint32
	line   string
	peers  []*peer.Peer
	weight int    // the greatest of the peers'
	points int    // in the ring
	epoch  uint64 // of the update that last saw it
	wants  int    // weight in the update that runs
}

// perBucket is the number of points that a bucket has on average when the ring
// is built; it is built anew when that has grown or shrunk fourfold.
const perBucket = 16

// lineOf is what the points of a peer come from.
func lineOf(p *peer.Peer) string {
	s := p.Server()
	return cmp.Or(s.Line, s.Name, s.Address)
}

// update brings the ring to the members of l as they are now. Servers that
// stay as they are keep their points untouched.
func (r *ring) update(l *peer.List) {
	r.epoch++
	total := 0
	for i := range l.Len() {
		p := l.At(i)
		n := r.nodeOf(p)
		if n.epoch != r.epoch {
			n.epoch, n.wants, n.peers = r.epoch, 0, n.peers[:0]
		}
		n.peers = append(n.peers, p)
		if w := p.Server().Weight; w > n.wants {
			total += (w - n.wants) * pointsPerWeight
			n.wants = w
		}
	}
	r.total = total
	cut := 0
	for total>>cut > maxPoints {
		cut++
	}
	if cut != r.cut || !r.fits(total>>cut) {
		r.rebuild(total>>cut, cut)
		return
	}
	for _, n := range r.nodes {
		if n == nil {
			continue
		}
		if n.epoch != r.epoch {
			r.resize(n, 0)
			r.drop(n)
		} else if n.wants != n.weight {
			r.resize(n, n.wants)
		}
	}
}

// nodeOf finds the node of p's server string, most often where p remembers it.
func (r *ring) nodeOf(p *peer.Peer) *node {
	line := lineOf(p)
	if n, ok := p.Memo.(*node); ok && n.ring == r && n.line == line && n.weight > 0 {
		return n
	}
	n := r.byLine[line]
	if n == nil {
		n = &node{ring: r, line: line}
		r.byLine[line] = n
		if last := len(r.free) - 1; last >= 0 {
			n.number, r.free = r.free[last], r.free[:last]
			r.nodes[n.number] = n
		} else {
			n.number = uint32(len(r.nodes))
			r.nodes = append(r.nodes, n)
		}
	}
	p.Memo = n
	return n
}

// drop forgets a node that has no points any more.
func (r *ring) drop(n *node) {
	n.weight = 0 // void where a peer remembers it
	delete(r.byLine, n.line)
	r.nodes[n.number] = nil
	r.free = append(r.free, n.number)
}

func (r *ring) fits(points int) bool {
	have := len(r.buckets) * perBucket
	return points <= 4*have && 4*points >= have
}

// rebuild makes all buckets anew.
func (r *ring) rebuild(total, cut int) {
	r.cut = cut
	width := max(0, bits.Len(uint(total/perBucket)))
	r.shift = uint(32 - width)
	r.buckets = make([][]point, 1<<width)
	sizes := make([]int32, len(r.buckets))
	var scratch []uint32
	for _, n := range r.nodes {
		switch {
		case n == nil:
			continue
		case n.epoch != r.epoch:
			r.drop(n)
			continue
		}
		n.weight = n.wants
		n.points = r.pointsFor(n.wants)
		scratch = points(scratch[:0], n.line, n.points)
		for _, v := range scratch {
			sizes[r.bucket(v)]++
		}
	}
	// One block for all: a bucket that grows later moves out of it.
	sum := 0
	for _, s := range sizes {
		sum += int(s)
	}
	block := make([]point, sum)
	for i, s := range sizes {
		r.buckets[i], block = block[:0:s], block[s:]
	}
	for _, n := range r.nodes {
		if n == nil {
			continue
		}
		scratch = points(scratch[:0], n.line, n.points)
		for _, v := range scratch {
			b := &r.buckets[r.bucket(v)]
			*b = append(*b, point{value: v, node: n.number})
		}
	}
	for _, b := range r.buckets {
		slices.SortFunc(b, r.compare)
	}
}

func (r *ring) bucket(value uint32) int {
	return int(uint64(value) >> r.shift)
}

func (r *ring) pointsFor(weight int) int {
	if weight == 0 {
		return 0
	}
	return max(1, weight*pointsPerWeight>>r.cut)
}

// compare orders by value; which server a value belongs to that two of
// them have must not depend on the order of the servers.
func (r *ring) compare(a, b point) int {
	if a.value != b.value {
		return cmp.Compare(a.value, b.value)
	}
	return cmp.Compare(r.nodes[a.node].line, r.nodes[b.node].line)
}

// resize gives n the points of another weight. The points of a smaller one are
// the first of those of a greater one.
func (r *ring) resize(n *node, weight int) {
	want := r.pointsFor(weight)
	all := points(nil, n.line, max(want, n.points))
	for _, v := range all[min(want, n.points):] {
		b := &r.buckets[r.bucket(v)]
		x := point{value: v, node: n.number}
		i, _ := slices.BinarySearchFunc(*b, x, r.compare)
		if want > n.points {
			*b = slices.Insert(*b, i, x)
		} else {
			*b = slices.Delete(*b, i, i+1)
		}
	}
	n.weight, n.points = weight, want
}

// cursor walks the ring over distinct values.
type cursor struct {
	r      *ring
	bucket int
	i      int
}

// seek returns the cursor at the first point whose value is not below h; it
// wraps. The ring must not be empty.
func (r *ring) seek(h uint32) cursor {
	c := cursor{r: r, bucket: r.bucket(h)}
	b := r.buckets[c.bucket]
	c.i, _ = slices.BinarySearchFunc(b, h, func(p point, h uint32) int { return cmp.Compare(p.value, h) })
	c.settle()
	return c
}

// settle moves on to a bucket that has something at the cursor.
func (c *cursor) settle() {
	for c.i >= len(c.r.buckets[c.bucket]) {
		c.bucket = (c.bucket + 1) & (len(c.r.buckets) - 1)
		c.i = 0
	}
}

func (c *cursor) at() point { return c.r.buckets[c.bucket][c.i] }

// next moves to the next value.
func (c *cursor) next() {
	value := c.at().value
	for b := c.r.buckets[c.bucket]; c.i < len(b) && b[c.i].value == value; {
		c.i++
	}
	c.settle()
}
