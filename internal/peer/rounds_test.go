// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

func TestASessionOfRoundsBeginsAgainWhenAllHaveBeenTried(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		servers      []peer.Server
		once, rounds string
	}{
		"two":         {[]peer.Server{{ID: "a"}, {ID: "b"}}, "ab---", "abbaa"}, // each twice, by their current weights
		"three":       {[]peer.Server{{ID: "a"}, {ID: "b"}, {ID: "c", Backup: true}}, "abc--", "abcba"},
		"a backup":    {[]peer.Server{{ID: "a"}, {ID: "b", Backup: true}}, "ab---", "ababa"},
		"one is down": {[]peer.Server{{ID: "a", Down: true}, {ID: "b"}, {ID: "c"}}, "bc---", "bccbb"},
		"none left":   {[]peer.Server{{ID: "a", MaxFails: 1, FailTimeout: time.Hour}, {ID: "b", MaxFails: 1, FailTimeout: time.Hour}}, "ab---", "ab---"},
	} {
		for _, rounds := range []bool{false, true} {
			config := peer.Config{Method: peertest.RoundRobin{}, Tracker: peertest.Rules{}, Servers: c.servers}
			for i := range config.Servers {
				config.Servers[i].Weight, config.Servers[i].Address = 1, config.Servers[i].ID
			}
			g := peer.NewGroup(peer.Options{Name: "g"})
			if err := g.Apply(config, now); err != nil {
				t.Fatal(err)
			}
			s := new(peer.Session)
			s.Begin(g, peer.SessionOptions{Rounds: rounds})
			got := ""
			for range 5 {
				l, err := s.Next(now)
				if err != nil {
					got += "-"
					continue
				}
				got += l.Peer().ID()
				l.Done(peer.Failed, now)
			}
			want := c.once
			if rounds {
				want = c.rounds
			}
			if got != want {
				t.Errorf("%s, rounds %v: picks %s, want %s", name, rounds, got, want)
			}
			for _, p := range g.Peers() {
				if n := p.Conns(); n != 0 {
					t.Errorf("%s: %d leases of %s are open", name, n, p.ID())
				}
			}
		}
	}
}
