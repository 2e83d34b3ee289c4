// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	stdcmp "cmp"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
	"github.com/caddy-upstream/caddy-upstream/leastconn"
	"github.com/caddy-upstream/caddy-upstream/passivehealth"
	"github.com/caddy-upstream/caddy-upstream/smoothrr"
)

// history is a case of testdata/swrr.json or testdata/swrr_failures.json: what a
// running nginx 1.31.5 answered, in the second while its servers failed,
// recovered and held requests open.
type history struct {
	Name   string
	Config struct {
		Servers []struct {
			Label               string
			Weight              int
			MaxFails            *int   `json:"max_fails"`
			FailTimeout         string `json:"fail_timeout"`
			MaxConns            int    `json:"max_conns"`
			Backup, Down, Drain bool
			SameAddress         string `json:"same_address_as"`
		}
		Method       string
		NextUpstream string `json:"next_upstream"`
		Tries        int    `json:"next_upstream_tries"`
	}
	Steps []struct {
		Op, ID, Server, Mode string
		N                    int
	}
	Expected struct {
		Results [][3]any
		Picks   string
	}
	AtMS           []int64 `json:"at_ms"`
	ExactClockSame bool    `json:"exact_clock_same"`

	// Of a run.
	group   *peer.Group
	policy  *peer.NextPolicy
	modes   map[string]string // by server; none is ok
	open    map[string][]*peer.Lease
	seconds bool // the clock has whole seconds only, as nginx's
}

func histories(t *testing.T, file string) []*history {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []*history
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// begin makes the group of the case with the tracker.
func (h *history) begin(t *testing.T, tracker peer.Tracker, seconds bool) {
	t.Helper()
	config := peer.Config{Tracker: tracker, SingleCountsDown: true}
	switch h.Config.Method {
	case "round_robin":
		config.Method = smoothrr.Method{}
	case "least_conn":
		config.Method = leastconn.Method{}
	default:
		t.Fatalf("method %q", h.Config.Method)
	}
	for _, s := range h.Config.Servers {
		server := peer.Server{
			ID: s.Label, Name: stdcmp.Or(s.SameAddress, s.Label), Weight: s.Weight, MaxConns: s.MaxConns,
			MaxFails: 1, FailTimeout: 10 * time.Second, Backup: s.Backup, Down: s.Down, Drain: s.Drain,
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
		config.Servers = append(config.Servers, server)
	}
	conditions, err := peer.ParseConditions(strings.Fields(h.Config.NextUpstream))
	if err != nil {
		t.Fatal(err)
	}
	h.group = peertest.Group(t, config, peer.Options{})
	h.policy = &peer.NextPolicy{Conditions: conditions}
	h.modes, h.open = map[string]string{}, map[string][]*peer.Lease{}
	h.seconds = seconds
}

// at is the time so long after the beginning.
func (h *history) at(d time.Duration) time.Time {
	if h.seconds {
		d = d.Truncate(time.Second)
	}
	return peertest.Start.Add(d)
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
func (h *history) request(hold bool, began time.Duration) (status, addrs, statuses string, open *peer.Lease) {
	var s peer.Session
	s.Begin(h.group, peer.SessionOptions{Tries: h.Config.Tries})
	var at, got []string
	for {
		now := h.at(began)
		lease, err := s.Next(now)
		if err != nil {
			at, got = append(at, "@"), append(got, "502")
			break
		}
		id := lease.Peer().Name() // the address: servers that share one fail together
		at = append(at, id)
		mode := h.modes[id]
		if mode == "" || hold && mode != "refuse" {
			got = append(got, "200")
			if hold {
				open = lease
			} else {
				lease.Done(peer.Success, now)
			}
			break
		}
		e := events[mode]
		got = append(got, e.status)
		if mode == "timeout" {
			began += 100 * time.Millisecond
			now = h.at(began)
		}
		progress := peer.Progress{Sent: mode != "refuse", Replayable: true, Idempotent: true}
		if mode == "500" {
			if s.MayReplace(h.policy, e.condition, progress, now) {
				lease.Done(peer.Failed, now)
				continue
			}
			lease.Done(peer.Success, now)
			break
		}
		lease.Done(peer.Failed, now)
		if !s.MayRetry(h.policy, e.condition, progress, now) {
			break
		}
	}
	return got[len(got)-1], strings.Join(at, ","), strings.Join(got, ","), open
}

func (h *history) run(t *testing.T) {
	var began time.Duration
	n := 0
	for _, step := range h.Steps {
		switch step.Op {
		case "set":
			h.modes[step.Server] = step.Mode
			if step.Mode == "ok" {
				delete(h.modes, step.Server)
			}
		case "get", "open":
			for range step.N {
				began = time.Duration(h.AtMS[n]) * time.Millisecond
				status, addrs, statuses, lease := h.request(step.Op == "open", began)
				if lease != nil {
					h.open[step.ID] = append(h.open[step.ID], lease)
				}
				want := h.Expected.Results[n]
				wantStatus, _ := json.Marshal(want[0])
				if diff := cmp.Diff([3]any{string(wantStatus), want[1], want[2]}, [3]any{status, addrs, statuses}); diff != "" {
					t.Fatalf("request %d (step %+v):\n%s", n, step, diff)
				}
				n++
			}
		case "release":
			for _, lease := range h.open[step.ID] {
				lease.Done(peer.Success, h.at(began))
			}
		case "sleep": // is in the times of the requests
		default:
			t.Fatalf("step %q", step.Op)
		}
	}
	if n != len(h.Expected.Results) {
		t.Errorf("%d requests, want %d", n, len(h.Expected.Results))
	}
	peertest.Idle(t, h.group)
}

func TestSequencesRecordedFromNginxComeOutTheSame(t *testing.T) {
	cases := histories(t, "swrr.json")
	if len(cases) != 36 {
		t.Errorf("%d cases, want 36", len(cases))
	}
	for _, h := range cases {
		t.Run(h.Name, func(t *testing.T) {
			h.begin(t, new(passivehealth.Tracker), false)
			got := ""
			for _, step := range h.Steps {
				if step.Op != "get" {
					t.Fatalf("step %q", step.Op)
				}
				for range step.N {
					got += peertest.Get(h.group, peer.SessionOptions{}, peertest.Start)
				}
			}
			if got != h.Expected.Picks {
				t.Errorf("picks = %s, want %s", got, h.Expected.Picks)
			}
		})
	}
}

const wholeSeconds = "nginx compares whole seconds, and some request came between the end of fail_timeout and that of its second"

// exactlyLeftOut are the histories that are others under an exact clock.
var exactlyLeftOut = map[string]string{
	"fail 23: random history 01": wholeSeconds,
	"fail 33: random history 11": wholeSeconds,
}

// TestHistoriesRecordedFromNginxComeOutTheSame runs all histories with nginx's
// clock, which has whole seconds, and with an exact one those that are the same
// then; with the tracker, and with the one that stands for it in tests of
// packages that may not import it.
func TestHistoriesRecordedFromNginxComeOutTheSame(t *testing.T) {
	cases := histories(t, "swrr_failures.json")
	for name, tracker := range map[string]peer.Tracker{"passive": new(passivehealth.Tracker), "peertest": peertest.Rules{}} {
		methods := map[string]int{}
		for _, h := range cases {
			methods[h.Config.Method]++
			t.Run(name+"/seconds/"+h.Name, func(t *testing.T) {
				h.begin(t, tracker, true)
				h.run(t)
			})
		}
		if diff := cmp.Diff(map[string]int{"round_robin": 19, "least_conn": 6}, methods); diff != "" {
			t.Errorf("cases (-want +got):\n%s", diff)
		}
		exact := 0
		for _, h := range cases {
			if _, out := exactlyLeftOut[h.Name]; out == h.ExactClockSame {
				t.Errorf("%s: left out: %v, but exact_clock_same is %v", h.Name, out, h.ExactClockSame)
			} else if out {
				continue
			}
			exact++
			t.Run(name+"/exact/"+h.Name, func(t *testing.T) {
				h.begin(t, tracker, false)
				h.run(t)
			})
		}
		if exact != 23 || len(exactlyLeftOut) != 2 {
			t.Errorf("%d cases ran with an exact clock and %d are left out, want 23 and 2", exact, len(exactlyLeftOut))
		}
	}
}
