// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxmap

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordedValues(t *testing.T) {
	b, err := os.ReadFile("testdata/map.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []struct {
		Name   string
		Config struct {
			Entries   [][2]string
			Hostnames bool
		}
		Steps    []struct{ Keys []string }
		Expected struct{ Values []string }
	}
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) != 6 {
		t.Fatalf("%d recorded cases, want 6", len(vs))
	}
	for _, v := range vs {
		var entries []Entry
		for _, e := range v.Config.Entries {
			entries = append(entries, Entry{e[0], e[1]})
		}
		m, err := New(entries, v.Config.Hostnames)
		if err != nil {
			t.Errorf("%s: New() = %v", v.Name, err)
			continue
		}
		for i, k := range v.Steps[0].Keys {
			got := m.Lookup(k).Expand(func(name string) string {
				if name == "arg_k" {
					return k
				}
				return "?"
			})
			if got != v.Expected.Values[i] {
				t.Errorf("%s: value of %q = %q, want %q", v.Name, k, got, v.Expected.Values[i])
			}
		}
	}
}

func build(t testing.TB, hostnames bool, lines ...string) *Map {
	t.Helper()
	var es []Entry
	for _, l := range lines {
		p, v, _ := strings.Cut(l, " => ")
		es = append(es, Entry{p, v})
	}
	m, err := New(es, hostnames)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWithoutHostnamesAWildcardIsText(t *testing.T) {
	m := build(t, false, "*.example.com => star", ".x => dot", "a. => a", "default => d")
	for k, want := range map[string]string{"*.Example.com": "star", "www.example.com": "d", ".x": "dot", "a.": "a", "a": "d"} {
		if got := m.Lookup(k).Text(); got != want {
			t.Errorf("Lookup(%q) = %q, want %q", k, got, want)
		}
	}
}

func TestNothingMatchesWithoutADefault(t *testing.T) {
	m := build(t, true, "a => b")
	if r := m.Lookup("c"); r.Matched || r.Text() != "" || r.Expand(nil) != "" {
		t.Errorf("Lookup(c) = %+v, want nothing", r)
	}
	if r := build(t, true, "default => d").Lookup("c"); r.Matched || r.Text() != "d" {
		t.Errorf("Lookup(c) = %+v, want the default, not matched", r)
	}
}

func TestAPatternForTheEmptyKey(t *testing.T) {
	if got := build(t, false, " => empty", "default => d").Lookup("").Text(); got != "empty" {
		t.Errorf("Lookup(\"\") = %q, want empty", got)
	}
}

func TestCapturesAreVariablesOfTheValue(t *testing.T) {
	m := build(t, false, `~^(a)?(?<tail>.*)-(?P<n>\d+)$ => $1|$2|${tail}|${n}0|$9|$other|$|${|${}|$-|${bad name}`)
	r := m.Lookup("xyz-42")
	got := r.Expand(func(n string) string { return "<" + n + ">" })
	if want := "|xyz|xyz|420|<9>|<other>|$|${|${}|$-|${bad name}"; got != want {
		t.Errorf("Expand() = %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{"tail", "n"}, r.Names()); diff != "" {
		t.Errorf("Names() differ (-want +got):\n%s", diff)
	}
	if s, ok := r.Capture("nosuch"); ok || s != "" {
		t.Errorf("Capture(nosuch) = %q, %v", s, ok)
	}
	if got := r.Expand(nil); got != "|xyz|xyz|420|||$|${|${}|$-|${bad name}" {
		t.Errorf("Expand(nil) = %q", got)
	}
}

func TestBadEntriesAreRefused(t *testing.T) {
	for _, bad := range [][]string{
		{"~("}, {"~*[a"}, {"~(?=x)"}, {"default", "default"}, {"a", "A"}, {`\a`, "a"},
		{"a*b.com"}, {"*"}, {"*."}, {".*"}, {"*.a.*"}, {"."}, {".a", "a"}, {".a", "*.a"}, {"a.*", "A.*"}, {".a*"},
	} {
		var es []Entry
		for _, p := range bad {
			es = append(es, Entry{Pattern: p})
		}
		if _, err := New(es, true); err == nil {
			t.Errorf("New(%q) accepted", bad)
		}
	}
}

func TestALongKeyOfDotsTakesNoLongTime(t *testing.T) {
	m := build(t, true, "*.example.com => a", "www.example.* => b")
	key := strings.Repeat(".", 64<<10)
	if m.Lookup(key).Matched {
		t.Error("a key of dots matched")
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("v=$1 r=$2 ${name}$")
	f.Fuzz(func(t *testing.T, s string) {
		// Variables written back as they were give the text again.
		tm := ParseTemplate(s)
		got := tm.Expand(func(n string) string { return "\x00" + n })
		if n := strings.Count(s, "$"); strings.Count(got, "\x00")-strings.Count(s, "\x00") > n {
			t.Fatalf("%q: more variables than dollar signs", s)
		}
		if !strings.Contains(s, "$") && got != s {
			t.Fatalf("Expand(%q) = %q", s, got)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	m := build(b, true, "a.example.com => a", "*.example.org => b", "www.* => c", "~^x(.*) => d$1", "default => e")
	for _, k := range []string{"a.example.com", "q.example.org", "www.foo", "xyz", "nothing"} {
		b.Run(k, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Lookup(k)
			}
		})
	}
}
