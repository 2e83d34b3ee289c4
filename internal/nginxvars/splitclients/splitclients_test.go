// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splitclients

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestRecordedValues(t *testing.T) {
	b, err := os.ReadFile("testdata/split_clients.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []struct {
		Name   string
		Config struct {
			Source string
			Parts  [][2]string
		}
		Steps    []struct{ Keys []string }
		Expected struct{ Values []string }
	}
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) != 7 {
		t.Fatalf("%d recorded cases, want 7", len(vs))
	}
	for _, v := range vs {
		var parts []Part
		for _, p := range v.Config.Parts {
			parts = append(parts, Part{p[0], p[1]})
		}
		table, err := New(parts)
		if err != nil {
			t.Errorf("%s: New() = %v", v.Name, err)
			continue
		}
		for i, k := range v.Steps[0].Keys {
			key := strings.NewReplacer("${arg_k}", k, "$arg_k", k).Replace(v.Config.Source)
			if got, want := table.Lookup(key), v.Expected.Values[i]; got != want {
				t.Errorf("%s: Lookup(%q) = %q, want %q", v.Name, key, got, want)
			}
		}
	}
}

func TestHashes(t *testing.T) {
	for s, want := range map[string]uint32{"": 0, "1": 0x49342faf, "abcd": 0x26873021} {
		if got := murmur2(s); got != want {
			t.Errorf("murmur2(%q) = %#x, want %#x", s, got, want)
		}
	}
}

func TestBadPartsAreRefused(t *testing.T) {
	for _, bad := range [][]string{
		{}, {"0%"}, {"0.00%"}, {"50"}, {"%"}, {"1.234%"}, {"x%"}, {"-1%"}, {"100.01%"}, {".5%"},
		{"60%", "40.01%"}, {"*", "10%"}, {"1000%"}, {"1.x%"}, {"*", "*"},
	} {
		var parts []Part
		for _, s := range bad {
			parts = append(parts, Part{Share: s})
		}
		if _, err := New(parts); err == nil {
			t.Errorf("New(%v) accepted", bad)
		}
	}
	for _, good := range [][]string{{"*"}, {"100%"}, {"0.01%"}, {"33.3%", "66.7%"}, {"100%", "*"}} {
		var parts []Part
		for _, s := range good {
			parts = append(parts, Part{Share: s})
		}
		if _, err := New(parts); err != nil {
			t.Errorf("New(%v) = %v", good, err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	table, _ := New([]Part{{"0.5%", "a"}, {"2%", "b"}, {"*", "c"}})
	b.ReportAllocs()
	for b.Loop() {
		table.Lookup("192.168.133.7AAA")
	}
}
