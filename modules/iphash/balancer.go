// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package iphash

import (
	"net/netip"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// maxMisses is how many draws of a session may hit a peer that cannot be
// picked; the next one makes it round robin for good.
const maxMisses = 20

// Method is nginx's ip_hash: a client is bound to a peer by its address, of IPv4
// only the first three octets. Peers that are down keep their share of the
// clients, which are drawn again.
type Method struct{}

// Wants implements peer.Wanter.
func (Method) Wants() peer.Wants { return peer.Wants{Client: true} }

// NewBalancer implements peer.Method.
func (Method) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return balancer{} }

type balancer struct{}

const (
	seed    = 89
	factor  = 113
	modulus = 6271
)

// Pick implements peer.Balancer. A retry goes on drawing where the try before
// stopped.
func (balancer) Pick(pass *peer.Pass) *peer.Peer {
	list, state := pass.List(), pass.State()
	h, misses := uint32(state[0]), &state[1] // h is kept less the seed
	if list.Backup() || list.Len() < 2 || *misses > maxMisses {
		return pass.RoundRobin()
	}
	h += seed
	for {
		h = draw(h, pass.Client())
		state[0] = uint64(h - seed)
		p := list.AtWeight(int64(h) % list.TotalWeight())
		if pass.Eligible(p) && pass.Admits(p, uint64(h)) {
			return p
		}
		if *misses++; *misses > maxMisses {
			return pass.RoundRobin()
		}
	}
}

// draw takes h on by the octets of the client's address, as it comes (an IPv4
// address mapped into IPv6 has sixteen); no address, that is
// a unix socket, counts as three zero octets.
func draw(h uint32, client netip.Addr) uint32 {
	if client.Is6() {
		for _, octet := range client.As16() {
			h = (h*factor + uint32(octet)) % modulus
		}
		return h
	}
	var octets [4]byte
	if client.Is4() {
		octets = client.As4()
	}
	for _, octet := range octets[:3] {
		h = (h*factor + uint32(octet)) % modulus
	}
	return h
}
