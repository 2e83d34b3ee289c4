// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package modules_test

import (
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// TestNoPickAllocates also takes a second try, and one that a hint decides. The
// second lease of a session is the only thing that is allocated.
func TestNoPickAllocates(t *testing.T) {
	options := traffic()
	for _, name := range names {
		g := sized(t, methods[name], 1000)
		s := new(peer.Session)
		hint := g.Peers()[500].SID()
		i := 0
		for _, c := range []struct {
			what string
			want float64
			run  func()
		}{
			{"a pick", 0, func() { pickAndDone(g, s, options[i%len(options)]) }},
			{"a hinted pick", 0, func() { pickAndDone(g, s, peer.SessionOptions{Hint: hint}) }},
			{"a retry", 1, func() {
				*s = peer.Session{}
				s.Begin(g, options[i%len(options)])
				for range 2 {
					l, err := s.Next(peertest.Start)
					if err != nil {
						t.Fatal(err)
					}
					l.Done(peer.Next, peertest.Start)
				}
			}},
		} {
			if got := testing.AllocsPerRun(200, func() { i++; c.run() }); got > c.want {
				t.Errorf("%s: %s allocates %v times, want %v", name, c.what, got, c.want)
			}
		}
	}
}
