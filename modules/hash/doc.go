// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package hash chooses by a hash of a key: nginx's "hash <key>", pick for pick,
// and its "hash <key> consistent" with the ring of Ketama, optionally with
// bounded loads.
//
// A session whose key is empty, a group with one server and the backup servers
// are served by round robin; so is, for good, a session that has met 21 peers
// that could not be picked. A retry goes on from where the try before stopped.
//
// Costs: a pick of [Plain] is logarithmic in the number of servers where their
// weights differ and constant where they do not; one of [Consistent] constant
// on average. A ring has at most two million points (16 MiB), whatever the
// weights; a change of the configuration costs the points of the servers that
// changed, and a look at each of the others. A server that starts slowly takes
// its keys one after the other, the same ones in each session.
package hash
