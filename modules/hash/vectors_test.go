// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// vector is a case of testdata: what a running nginx 1.31.5 picked.
type vector struct {
	Name, Kind string
	Config     struct {
		Servers []struct {
			Label, Server string
			Labels        []string
			Weight        int
			MaxFails      *int `json:"max_fails"`
			Backup        bool
			Down          flag
		}
	}
	Steps    []struct{ Keys []string }
	Expected struct {
		Picks  string
		Orders []string
	}
}

// flag is written as true or 1.
type flag bool

func (f *flag) UnmarshalJSON(b []byte) error {
	*f = string(b) == "true" || string(b) == "1"
	return nil
}

func (v *vector) group(t *testing.T, m peer.Method) *peer.Group {
	cfg := peer.Config{Method: m, SingleCountsDown: true}
	for _, s := range v.Config.Servers {
		labels := s.Labels
		if labels == nil {
			labels = []string{s.Label}
		}
		for _, label := range labels {
			server := peer.Server{ID: label, Line: s.Server, Weight: s.Weight, MaxFails: 1, FailTimeout: 10 * time.Second, Backup: s.Backup, Down: bool(s.Down)}
			if s.MaxFails != nil {
				server.MaxFails = *s.MaxFails
			}
			cfg.Servers = append(cfg.Servers, server)
		}
	}
	return peertest.Group(t, cfg, peer.Options{})
}

func replay(t *testing.T, file string, m peer.Method, want int) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []vector
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != want {
		t.Errorf("%d cases, want %d", len(cases), want)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			g := c.group(t, m)
			var orders []string
			for _, step := range c.Steps {
				for _, key := range step.Keys {
					ids, last := peertest.Walk(g, peer.SessionOptions{Key: key}, func(string) bool { return c.Kind == "retry" }, peertest.Start)
					if last != nil {
						last.Done(peer.Success, peertest.Start)
					}
					order := strings.Join(ids, "")
					if c.Name == "chash 23: same string twice" { // b is written as a there
						order = strings.ReplaceAll(order, "b", "a")
					}
					orders = append(orders, order)
				}
			}
			want := c.Expected.Orders
			if c.Kind == "pick" {
				want = strings.Split(c.Expected.Picks, "")
			}
			if diff := cmp.Diff(want, orders); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			peertest.Idle(t, g)
		})
	}
}

func TestPicksRecordedFromNginxComeOutTheSame(t *testing.T) {
	replay(t, "testdata/hash.json", Plain{}, 14)
}

func TestConsistentPicksRecordedFromNginxComeOutTheSame(t *testing.T) {
	replay(t, "testdata/chash.json", Consistent{}, 17)
}

// TestABalanceFactorChangesNothingWhileNobodyWaits: with one lease at a time
// no peer is over its bound.
func TestABalanceFactorChangesNothingWhileNobodyWaits(t *testing.T) {
	servers := []peer.Server{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	free := peertest.Group(t, peer.Config{Servers: servers, Method: Consistent{}}, peer.Options{})
	bound := peertest.Group(t, peer.Config{Servers: servers, Method: Consistent{BalanceFactor: 1.25}}, peer.Options{})
	for i := range 200 {
		o := peer.SessionOptions{Key: fmt.Sprint("key", i)}
		if got, want := peertest.Get(bound, o, peertest.Start), peertest.Get(free, o, peertest.Start); got != want {
			t.Errorf("pick of %q = %s, want %s", o.Key, got, want)
		}
	}
}
