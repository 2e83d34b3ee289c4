// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// queued is a group of one server that takes one request, with a queue.
func queued(t *testing.T, servers ...peer.Server) *peer.Group {
	t.Helper()
	return peertest.Group(t, peer.Config{
		Method: peertest.RoundRobin{}, Servers: servers, Queue: 1, QueueTimeout: time.Minute,
	}, peer.Options{})
}

// pick is one request's way into the group.
func pick(ctx context.Context, g *peer.Group) (*peer.Lease, error) {
	var s peer.Session
	s.Begin(g, peer.SessionOptions{})
	return Pick(ctx, &s, time.Now())
}

func mustPick(t *testing.T, g *peer.Group) *peer.Lease {
	t.Helper()
	l, err := pick(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestARequestWaitsForASlotAndNoLongerThanItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := queued(t, peer.Server{ID: "a", MaxConns: 1})
		first := mustPick(t, g)
		time.AfterFunc(10*time.Second, func() { first.Done(peer.Success, time.Now()) })
		began := time.Now()
		second := mustPick(t, g)
		if d := time.Since(began); d != 10*time.Second || !second.Start.Equal(time.Now()) {
			t.Errorf("waited %s until %s, want 10s until now", d, second.Start)
		}
		began = time.Now()
		if _, err := pick(t.Context(), g); !errors.Is(err, errQueueTimeout) || time.Since(began) != time.Minute {
			t.Errorf("Pick() = %v after %s, want %v after 1m", err, time.Since(began), errQueueTimeout)
		}
		second.Done(peer.Success, time.Now())
		if s := g.Status(); s.Waiting != 0 {
			t.Errorf("%d wait, want 0", s.Waiting)
		}
	})
}

func TestWhoWaitsLeavesWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := queued(t, peer.Server{ID: "a", MaxConns: 1})
		first := mustPick(t, g)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := pick(ctx, g); !errors.Is(err, context.Canceled) {
			t.Errorf("Pick() = %v, want that it was canceled", err)
		}
		if s := g.Status(); s.Waiting != 0 {
			t.Errorf("%d wait, want 0", s.Waiting)
		}
		first.Done(peer.Success, time.Now())
		mustPick(t, g).Done(peer.Success, time.Now()) // the slot did not go to who left
	})
}

func TestTheQueueIsServedWhenATimeOutEndsThoughNobodyElseAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := peer.Server{MaxFails: 1, FailTimeout: 7 * time.Second}
		a, b := conf, conf
		a.ID, b.ID = "a", "b"
		g := queued(t, a, b)
		for range 2 {
			mustPick(t, g).Done(peer.Failed, time.Now())
		}
		began := time.Now()
		l := mustPick(t, g)
		if d := time.Since(began); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("waited %s, want 7s", d)
		}
		l.Done(peer.Success, time.Now())
	})
}

func TestWhoFindsTheQueueFullIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := queued(t, peer.Server{ID: "a", MaxConns: 1})
		first := mustPick(t, g)
		go func() {
			l := mustPick(t, g)
			l.Done(peer.Success, time.Now())
		}()
		synctest.Wait()
		if _, err := pick(t.Context(), g); err != peer.ErrQueueFull {
			t.Errorf("Pick() = %v, want %v", err, peer.ErrQueueFull)
		}
		first.Done(peer.Success, time.Now())
		synctest.Wait()
	})
}
