// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
)

func TestRecordedValues(t *testing.T) {
	b, err := os.ReadFile("testdata/geo.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []struct {
		Name   string
		Config struct {
			Mode    string
			Entries [][]string
		}
		Steps    []struct{ Keys []string }
		Expected struct{ Values []string }
	}
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) != 5 {
		t.Fatalf("%d recorded cases, want 5", len(vs))
	}
	for _, v := range vs {
		var entries []Entry
		for _, e := range v.Config.Entries {
			entries = append(entries, Entry{Network: e[0], Value: e[1]})
		}
		mode := CIDR
		if v.Config.Mode == "ranges" {
			mode = Ranges
		}
		table, _, err := New(mode, entries)
		if err != nil {
			t.Errorf("%s: New() = %v", v.Name, err)
			continue
		}
		for i, k := range v.Steps[0].Keys {
			if got, _ := table.LookupText(k); got != v.Expected.Values[i] {
				t.Errorf("%s: LookupText(%q) = %q, want %q", v.Name, k, got, v.Expected.Values[i])
			}
		}
	}
}

// table builds from "network=value", "-network" to delete.
func table(t testing.TB, mode Mode, lines ...string) (*Table, []string) {
	t.Helper()
	tab, warnings, err := New(mode, parse(lines))
	if err != nil {
		t.Fatal(err)
	}
	return tab, warnings
}

func parse(lines []string) []Entry {
	var es []Entry
	for _, l := range lines {
		e := Entry{Network: l}
		if l[0] == '!' {
			e = Entry{Network: l[1:], Delete: true}
		} else {
			for i := range l {
				if l[i] == '=' {
					e = Entry{Network: l[:i], Value: l[i+1:]}
				}
			}
		}
		es = append(es, e)
	}
	return es
}

func check(t *testing.T, tab *Table, want map[string]string) {
	t.Helper()
	for k, w := range want {
		if got, _ := tab.LookupText(k); got != w {
			t.Errorf("LookupText(%q) = %q, want %q", k, got, w)
		}
	}
}

func TestADeletedNetworkShowsTheOneAroundIt(t *testing.T) {
	tab, warnings := table(t, CIDR, "10.0.0.0/8=a", "10.1.0.0/16=b", "10.1.2.0/24=c", "!10.1.0.0/16", "!11.0.0.0/8")
	check(t, tab, map[string]string{"10.1.1.1": "a", "10.1.2.1": "c", "11.1.1.1": ""})
	if len(warnings) != 1 {
		t.Errorf("warnings %q, want one, of 11.0.0.0/8", warnings)
	}
	tab, _ = table(t, CIDR, "default=d", "!default", "::/1=low")
	check(t, tab, map[string]string{"10.1.1.1": "", "::5": "low", "ffff::": ""})
}

func TestADuplicateNetworkIsAWarning(t *testing.T) {
	tab, warnings := table(t, CIDR, "10.0.0.0/8=a", "10.9.9.9/8=b")
	check(t, tab, map[string]string{"10.1.1.1": "b"})
	if len(warnings) != 1 {
		t.Errorf("warnings %q, want one", warnings)
	}
}

func TestWhatIsNoAddressIsTheBroadcastAddress(t *testing.T) {
	tab, _ := table(t, CIDR, "255.255.255.255=bc", "default=d", "fe80::/10=ll")
	check(t, tab, map[string]string{"": "bc", "unix:": "bc", "1.2.3": "bc", "fe80::1%eth0": "bc", "::1": "d", "fe80::1": "ll"})
	if got, _ := tab.Lookup(netip.Addr{}); got != "bc" {
		t.Errorf("a unix client is %q, want bc", got)
	}
	tab, _ = table(t, Ranges, "255.255.255.255-255.255.255.255=bc", "1.0.0.0-1.255.255.255=one")
	check(t, tab, map[string]string{"unix:": "bc", "2001:db8::1": "bc", "::ffff:1.2.3.4": "one", "255.255.255.254": ""})
}

func TestARangeWithinAnEarlierOneWins(t *testing.T) {
	tab, warnings := table(t, Ranges,
		"10.0.0.0-10.2.255.255=a", "10.1.5.0-10.1.5.255=b", "10.1.5.7-10.1.5.7=c", "default=d",
		"10.1.5.7-10.1.5.7=c2", "10.1.5.8-10.1.5.255=b2", "10.0.0.0-10.0.255.255=whole")
	check(t, tab, map[string]string{
		"10.0.0.0": "whole", "10.1.4.255": "a", "10.1.5.0": "b", "10.1.5.6": "b", "10.1.5.7": "c2",
		"10.1.5.8": "b2", "10.1.6.0": "a", "10.2.255.255": "a", "10.3.0.0": "d", "9.255.255.255": "d",
	})
	if len(warnings) != 3 {
		t.Errorf("warnings %q, want three", warnings)
	}
}

func TestARangeIsDeletedBlockByBlock(t *testing.T) {
	tab, warnings := table(t, Ranges, "10.0.0.0-10.1.255.255=a", "!10.0.0.0-10.0.255.255", "!10.1.0.0-10.1.0.255", "default=d", "!default")
	check(t, tab, map[string]string{"10.0.5.5": "", "10.1.0.5": "a", "200.0.0.1": ""})
	if len(warnings) != 1 {
		t.Errorf("warnings %q, want one: 10.1.0.0-10.1.0.255 is not there", warnings)
	}
}

func TestBadLinesAreRefused(t *testing.T) {
	for _, bad := range []string{"", "10.0.0.0/33=a", "10.0=a", "fe80::1%eth0=a", "all=a", "10.0.0.0-10.0.0.1=a"} {
		if _, _, err := New(CIDR, []Entry{{Network: bad}}); err == nil {
			t.Errorf("New(CIDR, %q) accepted", bad)
		}
	}
	for _, bad := range [][]string{
		{"10.0.0.0=a"}, {"10.0.0.0/8=a"}, {"10.0.0.1-10.0.0.0=a"}, {"::1-::2=a"}, {"10.0.0.0-=a"},
		{"10.0.0.0-10.0.0.9=a", "10.0.0.5-10.0.0.15=b"}, // over the end
		{"10.0.0.5-10.0.0.9=a", "10.0.0.0-10.0.0.6=b"},  // over the beginning
		{"10.0.0.5-10.0.0.9=a", "10.0.0.0-10.0.0.15=b"}, // around
	} {
		if _, _, err := New(Ranges, parse(bad)); err == nil {
			t.Errorf("New(Ranges, %q) accepted", bad)
		}
	}
}

// TestTheTableEqualsALookThroughAllPrefixes builds random nested tables and
// asks for addresses at and around their edges.
func TestTheTableEqualsALookThroughAllPrefixes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(v6 bool) netip.Addr {
		if v6 {
			b := [16]byte{0: 0x20, 15: byte(rng.IntN(4))}
			b[rng.IntN(16)] = byte(rng.Uint32())
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte{byte(rng.IntN(2) * 255), byte(rng.IntN(3)), byte(rng.IntN(3)), byte(rng.IntN(256))})
	}
	for range 300 {
		nets := map[netip.Prefix]string{}
		var entries []Entry
		var asks []netip.Addr
		for i := range rng.IntN(40) {
			a := random(rng.IntN(2) == 0)
			p := netip.PrefixFrom(a, rng.IntN(a.BitLen()+1)).Masked()
			v := fmt.Sprint(i % 5)
			nets[p] = v
			entries = append(entries, Entry{Network: p.String(), Value: v})
			asks = append(asks, p.Addr(), p.Addr().Prev(), a, a.Next())
		}
		tab, _, err := New(CIDR, entries)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			asks = append(asks, random(false), random(true))
		}
		for _, a := range asks {
			if !a.IsValid() {
				continue
			}
			want, best, found := "", -1, false
			for p, v := range nets {
				if p.Contains(a) && p.Bits() > best {
					want, best, found = v, p.Bits(), true
				}
			}
			if a.Is4In6() {
				continue // looked up as IPv4
			}
			if got, ok := tab.Lookup(a); got != want || ok != found {
				t.Fatalf("Lookup(%v) = %q, %v, want %q, %v, in %v", a, got, ok, want, found, nets)
			}
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 1000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var es []Entry
			for i := range n {
				a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
				es = append(es, Entry{Network: a.String(), Value: fmt.Sprint(i & 7)})
			}
			tab, _, err := New(CIDR, es)
			if err != nil {
				b.Fatal(err)
			}
			a := netip.AddrFrom4([4]byte{10, 0, byte(n >> 9), byte(n >> 1)})
			b.ReportAllocs()
			for b.Loop() {
				tab.Lookup(a)
			}
		})
	}
}
