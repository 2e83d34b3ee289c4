// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package readme reads the README.md beside a package, for tests that hold its
// tables complete.
package readme

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Text is the README.md of the package that is tested.
func Text(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	span = regexp.MustCompile("`([^`]+)`")
	name = regexp.MustCompile(`^[\w*-]+`)
)

// Column returns the code spans in the first column of the table below a
// heading, in order.
func Column(t testing.TB, heading string) []string {
	t.Helper()
	out := column(Text(t), heading)
	if out == nil {
		t.Fatalf("README.md: no table with code below the heading %q", heading)
	}
	return out
}

func column(text, heading string) []string {
	var out []string
	below, rows := false, 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
			below, rows = strings.TrimLeft(line, "# ") == heading, 0
		case below && strings.HasPrefix(line, "|"):
			if rows++; rows <= 2 { // the names of the columns, and a rule
				continue
			}
			cell, _, _ := strings.Cut(strings.ReplaceAll(line[1:], `\|`, "\x00"), "|")
			for _, m := range span.FindAllStringSubmatch(cell, -1) {
				out = append(out, strings.ReplaceAll(m[1], "\x00", "|"))
			}
		default:
			rows = 0
		}
	}
	return out
}

// Check fails the test unless the code in the first column of the table below a
// heading begins with these names, all of them and no others: an option
// "weight=<n>" has the name weight, and so has "weight <n>".
func Check(t testing.TB, heading string, want []string) {
	t.Helper()
	var got []string
	for _, s := range Column(t, heading) {
		got = append(got, name.FindString(s))
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("README.md: the table below %q is not complete, -want +got:\n%s", heading, diff)
	}
}

func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
