// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// sized returns a group of n servers of different weights.
func sized(t testing.TB, m peer.Method, n int) *peer.Group {
	cfg := peer.Config{Method: m}
	for i := range n {
		cfg.Servers = append(cfg.Servers, peer.Server{ID: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Weight: 1 + i%3, MaxFails: 1, FailTimeout: 10e9})
	}
	return peertest.Group(t, cfg, peer.Options{})
}

// traffic is the options of requests of many clients.
func traffic() []peer.SessionOptions {
	o := make([]peer.SessionOptions, 1024)
	for i := range o {
		o[i].Key = fmt.Sprintf("/item/%d/of/the/catalogue.html", i)
		o[i].Client = netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
	}
	return o
}

func pickAndDone(g *peer.Group, s *peer.Session, o peer.SessionOptions) {
	*s = peer.Session{}
	s.Begin(g, o)
	l, err := s.Next(peertest.Start)
	if err != nil {
		panic(err)
	}
	l.Done(peer.Success, peertest.Start)
}

func BenchmarkPickAndDone(b *testing.B) {
	options := traffic()
	for _, name := range names {
		for _, n := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/peers=%d", name, n), func(b *testing.B) {
				g := sized(b, methods[name], n)
				s := new(peer.Session)
				pickAndDone(g, s, options[0])
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					pickAndDone(g, s, options[i%len(options)])
				}
			})
		}
	}
}

// BenchmarkApply changes the weight of one server of many.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("hash consistent/peers=%d", n), func(b *testing.B) {
			g := sized(b, methods["hash consistent"], n)
			cfg := peer.Config{Method: methods["hash consistent"], Tracker: peertest.Rules{}}
			for _, p := range g.Peers() {
				cfg.Servers = append(cfg.Servers, *p.Server())
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				cfg.Servers[n/2].Weight = 1 + i%2
				if err := g.Apply(cfg, peertest.Start); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
