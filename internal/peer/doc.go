// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package peer is the engine of caddy-upstream: groups of peers, the choice
// among them, and the accounting of what became of it. HTTP and stream share
// it. It knows no protocol, does no I/O, starts no goroutine and reads no
// clock: time comes in as a parameter.
//
// The shape is nginx's own: a method picks ([Session.Next], nginx's "get"), and
// what was picked is given back with an outcome ([Lease.Done], nginx's "free").
//
//	var s peer.Session
//	s.Begin(group, peer.SessionOptions{})
//	for {
//		lease, err := s.Next(now)      // a peer, or ErrNoPeers
//		...                            // talk to lease.Peer().Address()
//		lease.Done(peer.Success, now)  // or Failed, and once more if s.MayRetry says so
//	}
//
// A [Group] has a primary and a backup [List] of [Peer]s. A peer is a
// [Server], the configuration, which is replaced whole when it changes, and live
// state, which stays. The guests of a group are its [Method], which makes the
// balancers that choose, and its [Tracker], which judges health. Neither
// dials, neither knows the other.
//
// # Smooth weighted round robin
//
// The pass of smooth weighted round robin (Igor Sysoev's algorithm, as nginx
// has it since 1.3.1) belongs to the engine, since every method needs it for
// ties and as its fall-back: add its effective weight to the current weight of
// every eligible peer, choose the greatest, subtract the total from the winner.
// A wheel (wheel.go) does this in time that depends on the number of distinct
// weights and not of peers, with exactly the same picks and weights as the loop
// over all peers.
//
// # Locking
//
// One mutex a group guards everything but a few counters. Guests are called
// with it held and must not block. Events are delivered after it is released.
package peer
