// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// count adds what a try that was connected has come to, at its end.
func (t *try) count(now time.Time) {
	stats := &t.lease.Peer().Stats
	stats.Sent.Add(uint64(max(0, t.sent.Load())))
	stats.Received.Add(uint64(max(0, t.received.Load())))
	peer.Record(&stats.Response, now.Sub(t.started), now)
}
