// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// errQueueTimeout is how a wait in the queue ends without a server.
var errQueueTimeout = fmt.Errorf("%w, and waiting in the queue timed out", peer.ErrNoPeers)

// wakeEvery is how often, at least, who waits looks for servers whose time out
// has ended: nobody else may be asking the group.
const wakeEvery = time.Second

// Pick picks a peer for s, and waits for one in the group's queue, if it has
// one. It ends with ctx. The time of the pick is the lease's Start.
func Pick(ctx context.Context, s *peer.Session, now time.Time) (*peer.Lease, error) {
	lease, err := s.Next(now)
	if err != peer.ErrNoPeers || s.Group().QueueTimeout() == 0 {
		return lease, err
	}
	return wait(ctx, s)
}

func wait(ctx context.Context, s *peer.Session) (*peer.Lease, error) {
	ready := make(chan struct{})
	w := &peer.Waiter{Ready: func() { close(ready) }}
	now := time.Now()
	lease, err := s.NextOrWait(w, now)
	if err != peer.ErrQueued {
		return lease, err
	}
	deadline := time.NewTimer(s.Group().QueueTimeout())
	defer deadline.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		select {
		case <-ready:
			return w.Leave(), nil
		case <-deadline.C:
			if lease := w.Leave(); lease != nil {
				return lease, nil
			}
			return nil, errQueueTimeout
		case <-ctx.Done():
			if lease := w.Leave(); lease != nil {
				lease.Done(peer.None, time.Now())
			}
			return nil, context.Cause(ctx)
		case now := <-wake.C:
			pause := wakeEvery
			if next := s.Group().Wake(now); !next.IsZero() {
				pause = max(time.Millisecond, min(pause, next.Sub(now)))
			}
			wake.Reset(pause)
		}
	}
}
