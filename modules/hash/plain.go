// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"hash/crc32"
	"strconv"
	"unsafe"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// maxMisses is how many draws of a session may hit a peer that cannot be
// picked; the next one makes it round robin for good.
const maxMisses = 20

// Plain is nginx's hash without "consistent". A key has a number, taken modulo
// the sum of all weights, and belongs to the peer whose share of the weights
// holds it; peers that are down keep their share, and their keys are drawn
// again with a count before the key. When a server is added or removed most keys
// move.
type Plain struct{}

// NewBalancer implements peer.Method.
func (Plain) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return plain{} }

type plain struct{}

// Pick implements peer.Balancer. A retry goes on drawing where the try before
// stopped.
func (plain) Pick(pass *peer.Pass) *peer.Peer {
	list, key := pass.List(), pass.Key()
	state := pass.State()
	sum, draws, misses := uint32(state[0]), state[1], &state[2]
	if key == "" || list.Backup() || list.Len() < 2 || *misses > maxMisses {
		return pass.RoundRobin()
	}
	for {
		sum += checksum(draws, key) >> 16 & 0x7fff
		draws++
		state[0], state[1] = uint64(sum), draws
		p := list.AtWeight(int64(sum) % list.TotalWeight())
		if pass.Eligible(p) && pass.Admits(p, uint64(sum)) {
			return p
		}
		if *misses++; *misses > maxMisses {
			return pass.RoundRobin()
		}
	}
}

// checksum is the CRC-32 of key, with the number of draws before it after the
// first.
func checksum(draws uint64, key string) uint32 {
	var crc uint32
	if draws > 0 {
		var digits [20]byte
		crc = ^crc
		for _, digit := range strconv.AppendUint(digits[:0], draws, 10) {
			crc = crc32.IEEETable[byte(crc)^digit] ^ crc>>8 // a call would move digits to the heap
		}
		crc = ^crc
	}
	return crc32.Update(crc, crc32.IEEETable, bytesOf(key))
}

// bytesOf returns the bytes of s, which must not be changed: crc32 takes no
// string, and a copy for each pick is more than the sum costs.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
