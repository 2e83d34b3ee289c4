// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package random

import (
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/timing"
)

// maxMisses is how many draws of a session may hit a peer that cannot be
// picked; the next one makes it round robin for good.
const maxMisses = 20

// Plain is nginx's random: peers are drawn by their configured weights until one
// can be picked.
type Plain struct{}

// NewBalancer implements peer.Method.
func (Plain) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return plain{} }

type plain struct{}

// Pick implements peer.Balancer.
func (plain) Pick(pass *peer.Pass) *peer.Peer {
	if systematic(pass) {
		return pass.RoundRobin()
	}
	for {
		if p := draw(pass); p != nil {
			return p
		}
		if missed(pass) {
			return pass.RoundRobin()
		}
	}
}

// LeastConn is "random two least_conn": of two different peers drawn the one
// with fewer connections for its weight; the second drawn if they are equal.
type LeastConn struct{}

// NewBalancer implements peer.Method.
func (LeastConn) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return leastConn{} }

type leastConn struct{}

// Pick implements peer.Balancer.
func (leastConn) Pick(pass *peer.Pass) *peer.Peer {
	a, b := two(pass)
	if b == nil || a.Conns()*b.Weight() < b.Conns()*a.Weight() {
		return a
	}
	return b
}

// LeastTime is "random two least_time=...": as LeastConn, with the estimate of
// least_time in the place of the connections.
type LeastTime struct{ Mode timing.Mode }

// NewBalancer implements peer.Method.
func (m LeastTime) NewBalancer(l *peer.List, old peer.Balancer) peer.Balancer {
	timing.Seed(l)
	return leastTime{timing.Observer{Mode: m.Mode}}
}

type leastTime struct{ timing.Observer }

// Pick implements peer.Balancer.
func (r leastTime) Pick(pass *peer.Pass) *peer.Peer {
	a, b := two(pass)
	if b == nil {
		return a
	}
	now := pass.Now()
	if r.Mode.Estimate(a, now)*b.Weight() < r.Mode.Estimate(b, now)*a.Weight() {
		return a
	}
	return b
}

// two draws two different peers that can be picked. Where that fails a is what
// round robin says, and b nil.
func two(pass *peer.Pass) (a, b *peer.Peer) {
	if systematic(pass) {
		return pass.RoundRobin(), nil
	}
	for {
		p := draw(pass)
		switch {
		case p == nil || p == a:
			if missed(pass) {
				return pass.RoundRobin(), nil
			}
		case a == nil:
			a = p
		default:
			return a, p
		}
	}
}

// systematic reports whether the pick is one of round robin from the start.
func systematic(pass *peer.Pass) bool {
	return pass.List().Backup() || pass.List().Len() < 2 || pass.State()[0] > maxMisses
}

// draw returns a random peer, nil if it cannot be picked.
func draw(pass *peer.Pass) *peer.Peer {
	l := pass.List()
	p := l.AtWeight(int64(pass.IntN(int(l.TotalWeight()))))
	if !pass.Eligible(p) || !pass.AdmitsRandom(p) {
		return nil
	}
	return p
}

// missed counts a draw that was of no use and reports whether it was the last.
func missed(pass *peer.Pass) bool {
	misses := &pass.State()[0]
	*misses++
	return *misses > maxMisses
}
