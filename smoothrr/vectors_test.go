// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package smoothrr

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// TestSequencesRecordedFromNginxComeOutTheSame replays testdata/swrr.json.
func TestSequencesRecordedFromNginxComeOutTheSame(t *testing.T) {
	raw, err := os.ReadFile("testdata/swrr.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string
		Config struct {
			Servers []struct {
				Label               string
				Weight              int
				Backup, Down, Drain bool
			}
		}
		Steps    []struct{ N int }
		Expected struct{ Picks string }
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			cfg := peer.Config{Method: method{}, Tracker: rules{}, SingleCountsDown: true}
			for _, s := range c.Config.Servers {
				cfg.Servers = append(cfg.Servers, peer.Server{
					ID: s.Label, Address: s.Label, Weight: max(1, s.Weight),
					MaxFails: 1, FailTimeout: 10 * time.Second, Backup: s.Backup, Down: s.Down, Drain: s.Drain,
				})
			}
			group := peer.NewGroup(peer.Options{})
			if err := group.Apply(cfg, now); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, step := range c.Steps {
				for range step.N {
					var s peer.Session
					s.Begin(group, peer.SessionOptions{})
					lease, err := s.Next(now)
					if err != nil {
						got += "@"
						continue
					}
					got += lease.Peer().ID()
					lease.Done(peer.Success, now)
				}
			}
			if got != c.Expected.Picks {
				t.Errorf("picks = %s, want %s", got, c.Expected.Picks)
			}
		})
	}
}
