// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package passivehealth

import (
	stdcmp "cmp"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// history is a case of testdata/swrr_failures.json: what a running nginx 1.31.5
// answered while its servers failed, recovered and held requests open.
type history struct {
	Name   string
	Config struct {
		Servers []struct {
			Label        string
			Weight       int
			MaxFails     *int   `json:"max_fails"`
			FailTimeout  string `json:"fail_timeout"`
			MaxConns     int    `json:"max_conns"`
			Backup, Down bool
			SameAddress  string `json:"same_address_as"`
		}
		Method       string
		NextUpstream string `json:"next_upstream"`
		Tries        int    `json:"next_upstream_tries"`
	}
	Steps []struct {
		Op, ID, Server, Mode string
		N                    int
	}
	Expected       struct{ Results [][3]any }
	AtMS           []int64 `json:"at_ms"`
	ExactClockSame bool    `json:"exact_clock_same"`
}

// roundRobin and leastConn stand for the balancers of those packages, which
// this one may not import; they are checked by their own tests.
type roundRobin struct{}

func (roundRobin) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return roundRobin{} }
func (roundRobin) Pick(pass *peer.Pass) *peer.Peer                     { return pass.RoundRobin() }

type leastConn struct{}

func (leastConn) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return leastConn{} }
func (leastConn) Pick(pass *peer.Pass) *peer.Peer {
	var least []*peer.Peer
	for i := range pass.List().Len() {
		p := pass.List().At(i)
		if !pass.Eligible(p) {
			continue
		}
		if len(least) > 0 {
			a := p.Conns() * int64(least[0].Server().Weight)
			b := least[0].Conns() * int64(p.Server().Weight)
			if a > b {
				continue
			} else if a < b {
				least = nil
			}
		}
		least = append(least, p)
	}
	if len(least) == 1 {
		return least[0]
	}
	return pass.RoundRobinAmong(least)
}

func (h *history) group(t *testing.T, now time.Time) *peer.Group {
	cfg := peer.Config{Method: roundRobin{}, Tracker: maxFails{}, SingleCountsDown: true}
	if h.Config.Method == "least_conn" {
		cfg.Method = leastConn{}
	}
	for _, s := range h.Config.Servers {
		server := peer.Server{
			ID: s.Label, Address: s.Label, Name: stdcmp.Or(s.SameAddress, s.Label), Weight: max(1, s.Weight), MaxConns: s.MaxConns,
			MaxFails: 1, FailTimeout: 10 * time.Second, Backup: s.Backup, Down: s.Down,
		}
		if s.MaxFails != nil {
			server.MaxFails = *s.MaxFails
		}
		if s.FailTimeout != "" {
			d, err := time.ParseDuration(s.FailTimeout)
			if err != nil {
				t.Fatal(err)
			}
			server.FailTimeout = d
		}
		cfg.Servers = append(cfg.Servers, server)
	}
	g := peer.NewGroup(peer.Options{Name: "@"})
	if err := g.Apply(cfg, now); err != nil {
		t.Fatal(err)
	}
	return g
}

var events = map[string]struct {
	condition peer.Conditions
	status    string
}{
	"refuse":  {peer.OnError, "502"},
	"close":   {peer.OnError, "502"},
	"timeout": {peer.OnTimeout, "504"},
	"500":     {peer.On500, "500"},
}

// request walks one request over the group and returns what nginx logs of it,
// with the lease that is still open when its server holds the request.
func request(g *peer.Group, policy *peer.NextPolicy, tries int, modes map[string]string, hold bool, now time.Time) (status, addrs, statuses string, open *peer.Lease) {
	var s peer.Session
	s.Begin(g, peer.SessionOptions{Tries: tries})
	var at, got []string
	var final string
	for {
		lease, err := s.Next(now)
		if err != nil {
			at, got = append(at, "@"), append(got, "502")
			final = "502"
			break
		}
		id := lease.Peer().Name() // the address: servers that share one fail together
		at = append(at, id)
		mode := modes[id]
		if mode == "" || hold && mode != "refuse" {
			got = append(got, "200")
			final = "200"
			if hold {
				open = lease
			} else {
				lease.Done(peer.Success, now)
			}
			break
		}
		e := events[mode]
		got = append(got, e.status)
		final = e.status
		if mode == "timeout" {
			now = now.Add(100 * time.Millisecond)
		}
		progress := peer.Progress{Sent: mode != "refuse", Replayable: true, Idempotent: true}
		if mode == "500" {
			if s.MayReplace(policy, e.condition, progress, now) {
				lease.Done(peer.Failed, now)
				continue
			}
			lease.Done(peer.Success, now)
			break
		}
		lease.Done(peer.Failed, now)
		if !s.MayRetry(policy, e.condition, progress, now) {
			break
		}
	}
	return final, strings.Join(at, ","), strings.Join(got, ","), open
}

// TestHistoriesRecordedFromNginxComeOutTheSame leaves out the cases marked as
// differing under an exact clock: nginx compares whole seconds.
func TestHistoriesRecordedFromNginxComeOutTheSame(t *testing.T) {
	raw, err := os.ReadFile("testdata/swrr_failures.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []history
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, h := range cases {
		if !h.ExactClockSame {
			continue
		}
		ran++
		t.Run(h.Name, func(t *testing.T) { h.run(t) })
	}
	if ran < 20 {
		t.Errorf("only %d cases ran", ran)
	}
}

func (h *history) run(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	g := h.group(t, base)
	conditions, err := peer.ParseConditions(strings.Fields(h.Config.NextUpstream))
	if err != nil {
		t.Fatal(err)
	}
	policy := &peer.NextPolicy{Conditions: conditions}
	modes := map[string]string{}
	open := map[string][]*peer.Lease{}
	now := base
	n := 0
	for _, step := range h.Steps {
		switch step.Op {
		case "set":
			modes[step.Server] = step.Mode
			if step.Mode == "ok" {
				delete(modes, step.Server)
			}
		case "get", "open":
			for range step.N {
				now = base.Add(time.Duration(h.AtMS[n]) * time.Millisecond)
				status, addrs, statuses, lease := request(g, policy, h.Config.Tries, modes, step.Op == "open", now)
				if lease != nil {
					open[step.ID] = append(open[step.ID], lease)
				}
				want := h.Expected.Results[n]
				wantStatus, _ := json.Marshal(want[0])
				got := [3]any{status, addrs, strings.ReplaceAll(statuses, " ", "")}
				if diff := cmp.Diff([3]any{string(wantStatus), want[1], want[2]}, got); diff != "" {
					t.Fatalf("request %d (step %+v):\n%s", n, step, diff)
				}
				n++
			}
		case "release":
			for _, lease := range open[step.ID] {
				lease.Done(peer.Success, now)
			}
			delete(open, step.ID)
		}
	}
	for _, s := range g.Snapshot(time.Now()) {
		if s.Conns != 0 {
			t.Errorf("conns of %s = %d at the end, want 0", s.Server.ID, s.Conns)
		}
	}
}
