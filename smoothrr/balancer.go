// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package smoothrr

import "github.com/caddy-upstream/caddy-upstream/internal/peer"

// balancer picks by one pass of the engine's smooth weighted round robin. It
// has no state of its own: current and effective weights belong to the peers.
type balancer struct{}

// Pick implements peer.Balancer.
func (balancer) Pick(pass *peer.Pass) *peer.Peer { return pass.RoundRobin() }

// Hinted implements peer.Hinter: round robin accounts for the choices of sticky
// sessions, no other method does.
func (balancer) Hinted(pass *peer.Pass, p *peer.Peer) { pass.ChargeRoundRobin(p) }
