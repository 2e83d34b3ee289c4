// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "sort"

// ring is a circular buffer of peers of one class, sorted by rel, the greatest
// first, and by index among equals. The winner of a pass moves from the head
// to the tail, so that both ends are cheap; anything else moves the shorter side.
type ring struct {
	buf  []*Peer // length is a power of two
	head int
	n    int
}

func (r *ring) at(i int) *Peer { return r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring) set(i int, p *Peer) { r.buf[(r.head+i)&(len(r.buf)-1)] = p }

// before is the order of the ring.
func before(p, q *Peer) bool {
	return p.rel > q.rel || p.rel == q.rel && p.index < q.index
}

func (r *ring) popFront() {
	r.set(0, nil)
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}

// insert puts p in its place.
func (r *ring) insert(p *Peer) {
	if r.n == len(r.buf) {
		r.grow()
	}
	if r.n == 0 || before(r.at(r.n-1), p) {
		r.set(r.n, p)
		r.n++
		return
	}
	i := r.search(p)
	if i < r.n/2 {
		r.head = (r.head - 1) & (len(r.buf) - 1)
		for j := 0; j < i; j++ {
			r.set(j, r.at(j+1))
		}
	} else {
		for j := r.n; j > i; j-- {
			r.set(j, r.at(j-1))
		}
	}
	r.set(i, p)
	r.n++
}

// remove takes out p, which must be there.
func (r *ring) remove(p *Peer) {
	i := r.search(p)
	if i < r.n/2 {
		for j := i; j > 0; j-- {
			r.set(j, r.at(j-1))
		}
		r.popFront()
		return
	}
	for j := i; j < r.n-1; j++ {
		r.set(j, r.at(j+1))
	}
	r.n--
	r.set(r.n, nil)
}

// search returns the first place whose peer does not go before p: p's own
// place if it is in the ring.
func (r *ring) search(p *Peer) int {
	return sort.Search(r.n, func(i int) bool { return !before(r.at(i), p) })
}

func (r *ring) grow() {
	buf := make([]*Peer, max(4, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = r.at(i)
	}
	r.buf, r.head = buf, 0
}
