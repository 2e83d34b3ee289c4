// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// benchGroup starts a group of n servers.
func benchGroup(b *testing.B, n int) *Runtime {
	b.Helper()
	r, err := acquire(runtimeKey{name: fmt.Sprint("bench-", n)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.release() })
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("s", i)
	}
	if err := r.push(testGeneration(ids...), zap.NewNop()); err != nil {
		b.Fatal(err)
	}
	return r
}

// counted is what a request costs the live state, from the pick to its end.
func counted(r *Runtime, s *peer.Session, now time.Time) {
	*s = peer.Session{}
	s.Begin(r.group, peer.SessionOptions{})
	l, err := s.Next(now)
	if err != nil {
		panic(err)
	}
	stats := &l.Peer().Stats
	stats.Answered(200)
	peer.Record(&stats.Header, time.Millisecond, now)
	peer.Record(&stats.Response, time.Millisecond, now)
	stats.Received.Add(100)
	l.Done(peer.Success, now)
}

// BenchmarkMetricsBesideRequests is a request's share of the live state while the
// metrics are scraped ten times a second, and while they are not. The two alternate.
func BenchmarkMetricsBesideRequests(b *testing.B) {
	r := benchGroup(b, 100)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{})
	for round := range 3 {
		for _, scraped := range []bool{false, true} {
			b.Run(fmt.Sprintf("scraped=%t/round=%d", scraped, round), func(b *testing.B) {
				stop := make(chan struct{})
				var wg sync.WaitGroup
				if scraped {
					wg.Go(func() {
						tick := time.NewTicker(100 * time.Millisecond)
						defer tick.Stop()
						for {
							select {
							case <-stop:
								return
							case <-tick.C:
								if _, err := registry.Gather(); err != nil {
									b.Error(err)
								}
							}
						}
					})
				}
				s, now := new(peer.Session), time.Now()
				b.ReportAllocs()
				for b.Loop() {
					counted(r, s, now)
				}
				close(stop)
				wg.Wait()
			})
		}
	}
}

// BenchmarkScrape is what one scrape costs.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10, 1000} {
		r := benchGroup(b, n)
		for range n {
			counted(r, new(peer.Session), time.Now())
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(collector{})
		b.Run(fmt.Sprintf("servers=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
