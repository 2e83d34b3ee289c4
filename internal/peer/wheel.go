// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "slices"

// wheel runs the pass of smooth weighted round robin over the peers filed in
// it. Peers of the same weight gain the same at each pass, so their order among
// themselves changes only when one of them wins: a class keeps them sorted by
// current weight, with what all of them gained in one running sum. A pass then
// looks at the head of each class and at the few peers whose effective weight is
// still recovering. Peers that are not filed keep their current weight.
type wheel struct {
	classes []*class
	slow    []*Peer // recovering from failures or starting slowly; in no order
}

// class holds the peers of one weight, sorted by current weight, the greatest
// first, and by index among equals.
type class struct {
	weight int64 // in the list's unit
	sum    int64 // what every member has gained; current weight = rel + sum
	ring   ring
}

// enter files p, which is in no class.
func (w *wheel) enter(p *Peer) {
	if !p.whole() {
		p.slow = true
		w.slow = append(w.slow, p)
		return
	}
	c := w.classOf(p.ceil)
	p.rel -= c.sum
	p.class = c
	c.ring.insert(p)
}

// leave takes p out; its current weight stays as it is.
func (w *wheel) leave(p *Peer) {
	switch {
	case p.class != nil:
		c := p.class
		c.ring.remove(p)
		p.rel += c.sum
		p.class = nil
		if c.ring.n == 0 {
			w.classes = slices.DeleteFunc(w.classes, func(x *class) bool { return x == c })
		}
	case p.slow:
		p.slow = false
		i := slices.Index(w.slow, p)
		last := len(w.slow) - 1
		w.slow[i], w.slow[last] = w.slow[last], nil
		w.slow = w.slow[:last]
	}
}

// dissolve takes everything out at once.
func (w *wheel) dissolve() {
	for _, c := range w.classes {
		for i := range c.ring.n {
			p := c.ring.at(i).peer
			p.rel += c.sum
			p.class = nil
		}
	}
	for _, p := range w.slow {
		p.slow = false
	}
	*w = wheel{}
}

func (w *wheel) holds(p *Peer) bool { return p.class != nil || p.slow }

func (w *wheel) classOf(weight int64) *class {
	for _, c := range w.classes {
		if c.weight == weight {
			return c
		}
	}
	c := &class{weight: weight}
	w.classes = append(w.classes, c)
	return c
}

// pass runs one pass and returns the winner, nil if nothing is filed.
func (w *wheel) pass() *Peer {
	best, of, total := w.gainAll()
	if of != nil {
		best = of.ring.popFront()
		best.rel -= total
		of.ring.insert(best)
	} else if best != nil {
		best.rel -= total
	}
	w.promote()
	return best
}

// passTo runs one pass whose win goes to p, whatever the weights say.
func (w *wheel) passTo(p *Peer) {
	_, _, total := w.gainAll()
	if c := p.class; c != nil {
		c.ring.remove(p)
		p.rel -= total
		c.ring.insert(p)
	} else {
		p.rel -= total
	}
	w.promote()
}

// gainAll adds to all current weights and returns who has the greatest, the
// first of a class or one of the slow, and what was added in all.
func (w *wheel) gainAll() (best *Peer, of *class, total int64) {
	var most int64
	var index int
	for _, c := range w.classes {
		c.sum += c.weight
		total += c.weight * int64(c.ring.n)
		head := c.ring.at(0)
		if cw := head.rel + c.sum; of == nil || cw > most || cw == most && head.index < index {
			of, most, index = c, cw, head.index
		}
	}
	for _, p := range w.slow {
		total += gain(p)
		if of == nil && best == nil || p.rel > most || p.rel == most && p.index < index {
			best, of, most, index = p, nil, p.rel, p.index
		}
	}
	return best, of, total
}

// promote files the peers whose effective weight is whole again by their weight.
func (w *wheel) promote() {
	for i := 0; i < len(w.slow); {
		if p := w.slow[i]; p.whole() {
			w.leave(p)
			w.enter(p)
		} else {
			i++
		}
	}
}

// gain adds its effective weight to p's explicit current weight, lets the
// effective weight recover by one, and returns what was added.
func gain(p *Peer) int64 {
	ew := p.health.Weight
	if ew < int64(p.conf.Load().Weight) {
		p.health.Weight++
	}
	ew = min(ew*p.list.unit, p.ceil)
	p.rel += ew
	return ew
}

// whole reports whether p gains its whole weight at each pass.
func (p *Peer) whole() bool {
	return p.rampFrom.IsZero() && p.health.Weight == int64(p.conf.Load().Weight)
}

// plainPass is the pass as nginx writes it, over peers whose current weight is
// explicit (in no class).
func plainPass(peers []*Peer) *Peer {
	var best *Peer
	var total int64
	for _, p := range peers {
		total += gain(p)
		if best == nil || p.rel > best.rel || p.rel == best.rel && p.index < best.index {
			best = p
		}
	}
	if best != nil {
		best.rel -= total
	}
	return best
}
