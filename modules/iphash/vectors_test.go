// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package iphash

import (
	"encoding/json"
	"net/netip"
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
			Label    string
			Weight   int
			MaxFails *int `json:"max_fails"`
			Backup   bool
			Down     any
		}
	}
	Steps    []struct{ Clients []string }
	Expected struct {
		Picks  string
		Orders []string
	}
}

func (v *vector) group(t *testing.T) *peer.Group {
	cfg := peer.Config{Method: Method{}, SingleCountsDown: true}
	for _, s := range v.Config.Servers {
		server := peer.Server{ID: s.Label, Weight: s.Weight, MaxFails: 1, FailTimeout: 10 * time.Second, Backup: s.Backup, Down: s.Down != nil}
		if s.MaxFails != nil {
			server.MaxFails = *s.MaxFails
		}
		cfg.Servers = append(cfg.Servers, server)
	}
	return peertest.Group(t, cfg, peer.Options{})
}

// clientOf reads an address; "unix:" is none.
func clientOf(s string) netip.Addr {
	a, _ := netip.ParseAddr(s)
	return a
}

func TestPicksRecordedFromNginxComeOutTheSame(t *testing.T) {
	raw, err := os.ReadFile("testdata/ip_hash.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []vector
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 11 {
		t.Errorf("%d cases, want 11", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			g := c.group(t)
			var orders []string
			for _, step := range c.Steps {
				for _, client := range step.Clients {
					ids, last := peertest.Walk(g, peer.SessionOptions{Client: clientOf(client)}, func(string) bool { return c.Kind == "retry" }, peertest.Start)
					if last != nil {
						last.Done(peer.Success, peertest.Start)
					}
					orders = append(orders, strings.Join(ids, ""))
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
