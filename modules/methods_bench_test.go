// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
	"github.com/caddy-upstream/caddy-upstream/passivehealth"
	"github.com/caddy-upstream/caddy-upstream/smoothrr"
)

// sized returns a group of n servers of weights 1 to 3.
func sized(t testing.TB, m peer.Method, n int) *peer.Group { return weighed(t, m, n, 3) }

// weighed returns a group of n servers of so many different weights.
func weighed(t testing.TB, m peer.Method, n, weights int) *peer.Group {
	cfg := peer.Config{Method: m, Tracker: new(passivehealth.Tracker)}
	for i := range n {
		cfg.Servers = append(cfg.Servers, peer.Server{ID: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Weight: 1 + i%weights, MaxFails: 1, FailTimeout: 10e9})
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

var sizes = []int{2, 10, 100, 1000, 10_000}

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
		for _, n := range sizes {
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

func BenchmarkPickAndDoneParallel(b *testing.B) {
	options := traffic()
	for _, name := range names {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/peers=%d", name, n), func(b *testing.B) {
				g := sized(b, methods[name], n)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					s := new(peer.Session)
					for i := 0; pb.Next(); i++ {
						pickAndDone(g, s, options[i%len(options)])
					}
				})
			})
		}
	}
}

// BenchmarkBySize picks from groups of all sizes in turn, for a millisecond each,
// and reports the fastest turn of each: what else the machine does falls on all of
// them.
func BenchmarkBySize(b *testing.B) {
	for _, name := range names {
		b.Run(name, func(b *testing.B) { bySize(b, methods[name], 3) })
	}
	for _, weights := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("round_robin/weights=%d", weights), func(b *testing.B) { bySize(b, smoothrr.Method{}, weights) })
	}
}

func bySize(b *testing.B, m peer.Method, weights int) {
	options, s := traffic(), new(peer.Session)
	turn := func(g *peer.Group, picks int) time.Duration {
		began := time.Now()
		for i := range picks {
			pickAndDone(g, s, options[i%len(options)])
		}
		return time.Since(began)
	}
	groups, picks, fastest := make([]*peer.Group, len(sizes)), make([]int, len(sizes)), make([]float64, len(sizes))
	for i, n := range sizes {
		groups[i], picks[i], fastest[i] = weighed(b, m, n, weights), 1, math.Inf(1)
		for turn(groups[i], picks[i]) < time.Millisecond {
			picks[i] *= 2
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for i, g := range groups {
			fastest[i] = min(fastest[i], float64(turn(g, picks[i]))/float64(picks[i]))
		}
	}
	for i, n := range sizes {
		b.ReportMetric(fastest[i], fmt.Sprintf("ns/pick-of-%d", n))
	}
	b.ReportMetric(fastest[len(sizes)-1]/fastest[1], "10000/10")
	b.ReportMetric(0, "ns/op")
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
