// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// table is the Markdown table of one mode at one number of connections.
func table(m *mode, conns int, peers []string, samples []sample) string {
	by := map[string][]sample{}
	for _, s := range samples {
		by[s.Peer] = append(by[s.Peer], s)
	}
	var refs []string
	for _, r := range m.refs {
		if len(by[r]) > 0 {
			refs = append(refs, r)
		}
	}
	rounds := len(by[peers[0]])
	var b strings.Builder
	if m.name == "idle" {
		fmt.Fprintf(&b, "\n**%s**: %s (sessions: %d, rounds: %d), median (min to max; of ratios %s)\n\n", m.name, m.title, conns, rounds, intervalText)
		memoryRows(&b, peers, refs, by)
		return b.String()
	}
	fmt.Fprintf(&b, "\n**%s**: %s (connections: %d, rounds: %d), median (min to max; of ratios %s)\n\n", m.name, m.title, conns, rounds, intervalText)
	rateRows(&b, m, peers, refs, by)
	other := column(samples, func(s sample) float64 { return max(0, 100*s.Other/s.Seconds) })
	fmt.Fprintf(&b, "\nCPU of anything else on the machine meanwhile: median %.0f %%, at most %.0f %% of one core.\n", median(other), slices.Max(other))
	return b.String()
}

func rateRows(b *strings.Builder, m *mode, peers, refs []string, by map[string][]sample) {
	costUnit, costScale := "µs", 1e6
	if m.unit == "GB" {
		costUnit, costScale = "s", 1
	}
	one := strings.TrimSuffix(m.unit, "s")
	head := []string{"peer", m.unit + "/s"}
	for _, r := range refs {
		head = append(head, "× "+r)
	}
	head = append(head, "CPU "+costUnit+" per "+one)
	for _, r := range refs {
		head = append(head, "× "+r)
	}
	timed := slices.ContainsFunc(by[peers[0]], func(s sample) bool { return s.P50 > 0 })
	if timed {
		head = append(head, "p50 ms", "p99 ms")
	}
	row(b, append(head, "errors"))
	row(b, slices.Repeat([]string{"---"}, len(head)+1))
	for _, name := range peers {
		all := by[name]
		cells := []string{name, spread(column(all, sample.rate))}
		for _, r := range refs {
			cells = append(cells, interval(ratios(all, by[r], sample.rate)))
		}
		cells = append(cells, spread(column(all, func(s sample) float64 { return s.cost() * costScale })))
		for _, r := range refs {
			cells = append(cells, interval(ratios(all, by[r], sample.cost)))
		}
		if timed {
			cells = append(cells,
				spread(column(all, func(s sample) float64 { return milliseconds(s.P50) })),
				spread(column(all, func(s sample) float64 { return milliseconds(s.P99) })))
		}
		errors := 0
		for _, s := range all {
			errors += s.Errors
		}
		row(b, append(cells, fmt.Sprint(errors)))
	}
}

func memoryRows(b *strings.Builder, peers, refs []string, by map[string][]sample) {
	head := []string{"peer", "KiB per session"}
	for _, r := range refs {
		head = append(head, "× "+r)
	}
	row(b, head)
	row(b, slices.Repeat([]string{"---"}, len(head)))
	for _, name := range peers {
		cells := []string{name, spread(column(by[name], func(s sample) float64 { return s.cost() / 1024 }))}
		for _, r := range refs {
			cells = append(cells, interval(ratios(by[name], by[r], sample.cost)))
		}
		row(b, cells)
	}
}

func row(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

func column(samples []sample, f func(sample) float64) []float64 {
	out := make([]float64, 0, len(samples))
	for _, s := range samples {
		out = append(out, f(s))
	}
	return out
}

// ratios compares each sample with the reference's of the same round.
func ratios(samples, ref []sample, f func(sample) float64) []float64 {
	var out []float64
	for _, s := range samples {
		for _, r := range ref {
			if r.Round == s.Round && f(r) > 0 {
				out = append(out, f(s)/f(r))
			}
		}
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// spread is median (min to max).
func spread(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", number(median(v)), number(slices.Min(v)), number(slices.Max(v)))
}

const intervalText = "its 95 % interval"

// interval is median (low to high), between which the median of all possible rounds
// lies with a probability of 95 %: two of the ordered values, as many of which lie
// below it as heads fall in as many throws of a coin. Of less than six values it is
// all of them, and the probability less.
func interval(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	n, low := len(v), -1
	for p, below := math.Pow(0.5, float64(n)), 0.0; below+p <= 0.025; {
		below += p // of low+1 heads or less
		low++
		p *= float64(n-low) / float64(low+1)
	}
	low = max(0, low)
	v = slices.Sorted(slices.Values(v))
	return fmt.Sprintf("%s (%s to %s)", number(median(v)), number(v[low]), number(v[n-1-low]))
}

// number has three significant digits, and no fraction from 100 on.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
