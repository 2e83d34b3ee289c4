// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"fmt"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

func sized(b testing.TB, m peer.Method, n int) *peer.Group {
	cfg := peer.Config{Method: m}
	for i := range n {
		cfg.Servers = append(cfg.Servers, peer.Server{ID: fmt.Sprint("s", i), MaxFails: 1, FailTimeout: 10e9})
	}
	return peertest.Group(b, cfg, peer.Options{})
}

// pickAndDone is what a request costs that its first server answers. Fronts
// embed the session in an object of their own, so it is not counted here.
func pickAndDone(g *peer.Group, s *peer.Session) {
	*s = peer.Session{}
	s.Begin(g, peer.SessionOptions{})
	l, err := s.Next(t0)
	if err != nil {
		panic(err)
	}
	l.Done(peer.Success, t0)
}

// BenchmarkPickWithSomeOut has every tenth server disabled.
func BenchmarkPickWithSomeOut(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		g := sized(b, peertest.RoundRobin{}, n)
		for i := range n {
			l := peertest.Pick(g, peer.SessionOptions{}, t0)
			if i%10 == 0 {
				l.Done(peer.Failed, t0)
			} else {
				l.Done(peer.Success, t0)
			}
		}
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			s := new(peer.Session)
			for b.Loop() {
				pickAndDone(g, s)
			}
		})
	}
}

// BenchmarkApply changes the weight of one server of many, as an autoscaler
// does.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		g := sized(b, peertest.RoundRobin{}, n)
		var servers []peer.Server
		for _, p := range g.Peers() {
			servers = append(servers, *p.Server())
		}
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				servers[n/2].Weight = 1 + i%2
				if err := g.Apply(peer.Config{Servers: servers, Method: peertest.RoundRobin{}, Tracker: peertest.Rules{}}, t0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
