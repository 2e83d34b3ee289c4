// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"slices"
	"strings"
)

// allowedIn lists the kinds of blocks that a directive may stand in.
func allowedIn(name string) string {
	var in context
	for _, e := range table[name] {
		in |= e.in
	}
	var out []string
	for bit := inMain; bit <= inStreamUpstream; bit <<= 1 {
		if in&bit != 0 {
			out = append(out, contextNames[bit])
		}
	}
	return strings.Join(out, ", ")
}

// similar is the directive that an unknown name is a slip of the pen for, empty
// if none is near.
func similar(name string, in context) string {
	best, distance := "", 3
	if len(name) < 6 {
		distance = 2
	}
	for known, entries := range table {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.in&in != 0 && e.advice == "" }) {
			continue
		}
		if d := edits(name, known); d < distance || d == distance && known < best && best != "" {
			best, distance = known, d
		}
	}
	return best
}

// edits is how many letters have to be put in, taken out, changed or swapped with
// their neighbour to make b of a.
func edits(a, b string) int {
	before, last, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			cur[j] = min(last[j]+1, cur[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, last, cur = last, cur, before
	}
	return last[len(b)]
}
