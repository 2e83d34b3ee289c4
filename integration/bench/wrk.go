// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// wrk is a load of GETs for path.
func wrk(path string) func(context.Context, *bench, string, int, time.Duration) (load, error) {
	return func(ctx context.Context, _ *bench, addr string, conns int, d time.Duration) (load, error) {
		seconds := max(1, int(d.Round(time.Second)/time.Second)) // wrk knows whole ones only
		out, err := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(conns), "-d"+strconv.Itoa(seconds)+"s",
			"--timeout", "10s", "--latency", "http://"+addr+path).CombinedOutput()
		if err != nil {
			return load{}, fmt.Errorf("wrk: %w\n%s", err, out)
		}
		return parseWrk(string(out))
	}
}

var (
	wrkTotal  = regexp.MustCompile(`(\d+) requests in ([\d.]+(?:us|ms|s|m)),`)
	wrkP50    = regexp.MustCompile(`\n\s+50%\s+(\S+)`)
	wrkP99    = regexp.MustCompile(`\n\s+99%\s+(\S+)`)
	wrkStatus = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	wrkSocket = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
)

func parseWrk(out string) (load, error) {
	var l load
	for _, v := range []struct {
		re   *regexp.Regexp
		into *time.Duration
	}{{wrkP50, &l.P50}, {wrkP99, &l.P99}} {
		m := v.re.FindStringSubmatch(out)
		if m == nil {
			return l, fmt.Errorf("wrk printed no %v:\n%s", v.re, out)
		}
		d, err := time.ParseDuration(m[1])
		if err != nil {
			return l, err
		}
		*v.into = d
	}
	m := wrkTotal.FindStringSubmatch(out)
	if m == nil {
		return l, fmt.Errorf("wrk printed no total:\n%s", out)
	}
	l.N, _ = strconv.ParseFloat(m[1], 64)
	d, err := time.ParseDuration(m[2])
	if err != nil {
		return l, err
	}
	l.Seconds = d.Seconds()
	for _, re := range []*regexp.Regexp{wrkStatus, wrkSocket} {
		if m := re.FindStringSubmatch(out); m != nil {
			for _, n := range m[1:] {
				v, _ := strconv.Atoi(n)
				l.Errors += v
			}
		}
	}
	return l, nil
}
