// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package geo

import (
	"net/netip"
	"testing"
)

func TestALookupDoesNotAllocate(t *testing.T) {
	tab, _ := table(t, CIDR, "10.0.0.0/8=a", "::/8=b")
	a := netip.MustParseAddr("::ffff:10.1.1.1")
	if n := testing.AllocsPerRun(100, func() { tab.Lookup(a); tab.LookupText("10.2.2.2") }); n != 0 {
		t.Errorf("%v allocations per lookup, want 0", n)
	}
}
