// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"net/netip"
	"strings"
	"testing"
)

// rules reads "+10.0.0.0/8 -all".
func rules(t testing.TB, s string) *Rules {
	t.Helper()
	var rs []Rule
	for _, f := range strings.Fields(s) {
		rs = append(rs, Rule{Allow: f[0] == '+', Match: f[1:]})
	}
	r, err := New(rs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheFirstMatchingRuleDecides(t *testing.T) {
	for _, c := range []struct {
		rules, client string
		want          bool
	}{
		{"", "192.0.2.1", true},
		{"", "unix:", true},
		{"-192.0.2.1", "192.0.2.2", true},
		{"-192.0.2.1", "192.0.2.1", false},
		{"+10.0.0.0/8 -all", "10.1.2.3", true},
		{"+10.0.0.0/8 -all", "11.1.2.3", false},
		{"-all +10.0.0.0/8", "10.1.2.3", false},
		{"-10.1.0.0/16 +10.0.0.0/8 -all", "10.1.2.3", false},
		{"-10.1.0.0/16 +10.0.0.0/8 -all", "10.2.2.3", true},
		{"+10.9.9.9/8 -all", "10.1.2.3", true}, // host bits do not matter
		{"-all", "unix:", false},
		{"-all", "2001:db8::1", false},
		{"+unix: -all", "unix:", true},
		{"-unix: +all", "unix:", false},
		{"-unix:", "127.0.0.1", true},
		{"+2001:db8::/32 -all", "2001:db8::1", true},
		{"+2001:db8::/32 -all", "2001:db9::1", false},
		{"+10.0.0.0/8 -all", "::ffff:10.0.0.1", true},
		{"+10.0.0.0/8 -all", "::ffff:11.0.0.1", false},
		{"-::ffff:0:0/96", "::ffff:11.0.0.1", false},           // no IPv4 rules: IPv6 ones
		{"-::ffff:0:0/96 +10.0.0.0/8", "::ffff:1.1.1.1", true}, // there are IPv4 rules
		{"-fe80::/10", "fe80::1%eth0", false},
	} {
		var client netip.Addr
		if c.client != "unix:" {
			client = netip.MustParseAddr(c.client)
		}
		if got := rules(t, c.rules).Allowed(client); got != c.want {
			t.Errorf("rules %q: Allowed(%s) = %v, want %v", c.rules, c.client, got, c.want)
		}
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	for _, bad := range []string{"", "10.0.0.0/33", "localhost", "10.0.0", "fe80::1%eth0", "unix", "*"} {
		if _, err := New([]Rule{{Match: bad}}); err == nil {
			t.Errorf("New(%q) accepted", bad)
		}
	}
}

func BenchmarkAllowed(b *testing.B) {
	r := rules(b, "+10.0.0.0/8 +192.168.0.0/16 +172.16.0.0/12 -all")
	a := netip.MustParseAddr("198.51.100.7")
	b.ReportAllocs()
	for b.Loop() {
		r.Allowed(a)
	}
}
