// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

const wrkOutput = `Running 1s test @ http://127.0.0.1:1/
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.20ms    2.00ms  20.00ms   90.00%
    Req/Sec     9.00k     1.00k   10.00k    70.00%
  Latency Distribution
     50%  835.00us
     75%    1.00ms
     90%    2.00ms
     99%    5.46ms
  9005 requests in 1.10s, 2.00MB read
  Socket errors: connect 1, read 2, write 0, timeout 3
  Non-2xx or 3xx responses: 4
Requests/sec:   8186.36
Transfer/sec:      1.82MB
`

func TestWrkOutputIsRead(t *testing.T) {
	got, err := parseWrk(wrkOutput)
	if err != nil {
		t.Fatal(err)
	}
	want := load{N: 9005, Seconds: 1.1, P50: 835 * time.Microsecond, P99: 5460 * time.Microsecond, Errors: 10}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if _, err := parseWrk("unable to connect"); err == nil {
		t.Error("output without figures is no error")
	}
}

// Ratios are between measurements of the same round, not between medians.
func TestTableShowsMediansAndRatiosWithinRounds(t *testing.T) {
	at := func(peer string, round int, rate, cpu float64) sample {
		return sample{Peer: peer, Round: round, CPU: cpu, load: load{N: rate, Seconds: 1, P50: time.Millisecond, P99: 2 * time.Millisecond}}
	}
	got := table(modeByName("ka"), 64, []string{"ours", "stock"}, []sample{
		at("ours", 0, 2000, 0.2), at("stock", 0, 1000, 0.2),
		at("ours", 1, 300, 0.3), at("stock", 1, 100, 0.2),
		at("ours", 2, 100, 0.1), at("stock", 2, 100, 0.1),
	})
	for _, want := range []string{
		"**ka**: 100-byte answers, connections kept alive on both sides (connections: 64, rounds: 3), median (min to max; of ratios its 95 % interval)",
		"| peer | requests/s | × stock | CPU µs per request | × stock | p50 ms | p99 ms | errors |",
		"| ours | 300 (100 to 2000) | 2.00 (1.00 to 3.00) | 1000 (100 to 1000) | 0.50 (0.50 to 1.00) | 1.00 (1.00 to 1.00) | 2.00 (2.00 to 2.00) | 0 |",
		"| stock | 100 (100 to 1000) | 1.00 (1.00 to 1.00) |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

// The ranks are those of tables of the binomial distribution.
func TestIntervalsOfMedians(t *testing.T) {
	for n, want := range map[int]string{1: "1.00 (1.00 to 1.00)", 6: "3.50 (1.00 to 6.00)", 10: "5.50 (2.00 to 9.00)", 21: "11.0 (6.00 to 16.0)", 100: "50.5 (40.0 to 61.0)"} {
		var v []float64
		for i := range n {
			v = append(v, float64(n-i))
		}
		if got := interval(v); got != want {
			t.Errorf("of 1 to %d: %s, want %s", n, got, want)
		}
	}
}

// The load generators, on the backends themselves.
func TestStreamLoadsCount(t *testing.T) {
	raiseDescriptorLimit()
	var to targets
	s, err := startStreamServers(&to)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for name, addr := range map[string]string{"bulk": to.Source, "bulkup": to.Sink, "rate": to.Echo[0], "ping": to.Echo[1], "udp": to.UDP} {
		t.Run(name, func(t *testing.T) {
			got, err := modeByName(name).load(t.Context(), nil, addr, 2, 500*time.Millisecond)
			if err != nil || got.N <= 0 || got.Seconds < 0.5 {
				t.Errorf("load = %+v, %v, want units in half a second", got, err)
			}
		})
	}
	open, err := openSessions(t.Context(), to.Echo[2], 50)
	defer closeAll(open)
	if err != nil || len(open) != 50 {
		t.Errorf("%d sessions, %v, want 50", len(open), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if open, err := openSessions(ctx, to.Echo[2], 50); err == nil || len(open) != 0 {
		t.Errorf("%d sessions after the end, %v, want none and an error", len(open), err)
	}
}

func TestLoadsReportARefusedPeer(t *testing.T) {
	addr := testnet.RefusedAddr(t)
	if _, err := bulkDown(t.Context(), nil, addr, 1, 50*time.Millisecond); err == nil {
		t.Error("bulk bytes from nobody are no error")
	}
	if got, err := connRate(t.Context(), nil, addr, 1, 20*time.Millisecond); err != nil || got.N != 0 || got.Errors == 0 {
		t.Errorf("connections to nobody = %+v, %v, want errors only", got, err)
	}
}

func TestBadCommandLinesAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-modes", "nonsense"}, {"-conns", "8,x"}, {"-conns", "0"}, {"-rounds", "0"}, {"-tries", "0"}, {"-fresh", "-1"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// One short run of each kind, through a real proxy.
func TestARunMeasuresAPeer(t *testing.T) {
	testnet.Need(t, "wrk")
	testnet.Need(t, "nginx")
	err := run(t.Context(), []string{
		"-modes", "ka,ping,idle", "-peers", "nginx", "-conns", "2", "-rounds", "2", "-fresh", "1",
		"-duration", "1s", "-warm", "0s", "-tries", "1", "-sessions", "20",
	})
	if err != nil {
		t.Error(err)
	}
}
