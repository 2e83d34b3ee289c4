// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "sort"

// ring is a circular buffer of peers of one class, sorted by rel, the greatest
// first, and by index among equals. The winner of a pass moves from the head
// to the tail, so that both ends are cheap; anything else moves the shorter side.
type ring struct {
	buf  []seat // length is a power of two
	head int
	n    int
}

// seat is a peer's place in a ring. What a pass compares stands there, for with
// thousands of peers a pick takes as long as the memory that it has to read: of
// the peers it reads only the winner.
type seat struct {
	rel   int64 // the peer's, which change only while it is in no ring
	index int
	peer  *Peer
}

func seatOf(p *Peer) seat { return seat{p.rel, p.index, p} }

// before is the order of the ring.
func (s *seat) before(t *seat) bool {
	return s.rel > t.rel || s.rel == t.rel && s.index < t.index
}

func (r *ring) at(i int) *seat { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// popFront takes out the first, of which it returns the peer.
func (r *ring) popFront() *Peer {
	first := r.at(0)
	p := first.peer
	*first = seat{}
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return p
}

// insert puts p in its place.
func (r *ring) insert(p *Peer) {
	if r.n == len(r.buf) {
		r.grow()
	}
	s := seatOf(p)
	if r.n == 0 || r.at(r.n-1).before(&s) {
		*r.at(r.n) = s
		r.n++
		return
	}
	i := r.search(&s)
	if i < r.n/2 {
		r.head = (r.head - 1) & (len(r.buf) - 1)
		for j := 0; j < i; j++ {
			*r.at(j) = *r.at(j + 1)
		}
	} else {
		for j := r.n; j > i; j-- {
			*r.at(j) = *r.at(j - 1)
		}
	}
	*r.at(i) = s
	r.n++
}

// remove takes out p, which must be there.
func (r *ring) remove(p *Peer) {
	s := seatOf(p)
	i := r.search(&s)
	if i < r.n/2 {
		for j := i; j > 0; j-- {
			*r.at(j) = *r.at(j - 1)
		}
		r.popFront()
		return
	}
	for j := i; j < r.n-1; j++ {
		*r.at(j) = *r.at(j + 1)
	}
	r.n--
	*r.at(r.n) = seat{}
}

// search returns the first place whose peer does not go before s: the peer's own
// if it is in the ring.
func (r *ring) search(s *seat) int {
	return sort.Search(r.n, func(i int) bool { return !r.at(i).before(s) })
}

func (r *ring) grow() {
	buf := make([]seat, max(4, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
