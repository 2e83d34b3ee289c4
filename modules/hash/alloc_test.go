// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package hash

import (
	"runtime"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// TestHugeWeightsAreBuiltInBoundedTimeAndMemory (CASES 7) also checks that the light
// server is not lost.
func TestHugeWeightsAreBuiltInBoundedTimeAndMemory(t *testing.T) {
	for _, weights := range [][]int{{1_000_000, 1}, {1 << 40, 1}} {
		took := time.Hour // of the fastest: others use the machine too
		for range 5 {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			began := time.Now()
			var b peer.Balancer
			g := peertest.Group(t, peer.Config{Method: capture{Consistent{}, &b}, Servers: weighted(weights...)}, peer.Options{})
			took = min(took, time.Since(began))
			runtime.ReadMemStats(&after)
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 50 {
				t.Errorf("weights %v: allocated %d MiB", weights, mib)
			}
			if light := b.(*consistent).ring.byLine["127.0.0.1:18082"].points; light < 1 {
				t.Errorf("weights %v: the light server has %d points", weights, light)
			}
			runtime.KeepAlive(g)
			if took < time.Second {
				break
			}
		}
		if took > time.Second {
			t.Errorf("weights %v: built in %s", weights, took)
		}
	}
}
