// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import "github.com/caddy-upstream/caddy-upstream/internal/peer"

// The engine's types, for those who write methods and trackers of their own.
// A method is a Caddy module in the namespace upstream.balancers that
// implements Method; a tracker one in upstream.health_trackers that implements
// Tracker.
type (
	// Method makes the balancers of a group; see the engine's documentation
	// on each type.
	Method = peer.Method
	// Wants is what a method needs to know of each session; Wanter a method that
	// does.
	Wants  = peer.Wants
	Wanter = peer.Wanter
	// Hinter is a balancer that accounts for the choices of sticky sessions.
	Hinter = peer.Hinter
	// Observer is a balancer that learns how the leases of its list go.
	Observer = peer.Observer
	// Lease holds a slot on a peer, Metric names a time of an attempt.
	Lease  = peer.Lease
	Metric = peer.Metric
	// Balancer chooses among the peers of one list.
	Balancer = peer.Balancer
	// Pass is what a balancer sees while it picks.
	Pass = peer.Pass
	// List is the primary or the backup peers of a group.
	List = peer.List
	// Peer is one address of a server.
	Peer = peer.Peer
	// Tracker turns outcomes into eligibility and effective weight.
	Tracker = peer.Tracker
	// Health is what a tracker knows of a peer.
	Health = peer.Health
	// Outcome is how the use of a peer ends.
	Outcome = peer.Outcome
)

// The outcomes.
const (
	None    = peer.None
	Success = peer.Success
	Failed  = peer.Failed
	Next    = peer.Next
	Stale   = peer.Stale
)

// The times of an attempt.
const (
	Connect   = peer.Connect
	FirstByte = peer.FirstByte
	LastByte  = peer.LastByte
)
