// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package splitclients

import "testing"

func TestALookupDoesNotAllocate(t *testing.T) {
	table, _ := New([]Part{{"50%", "a"}, {"*", "b"}})
	if n := testing.AllocsPerRun(100, func() { table.Lookup("192.0.2.1AAA") }); n != 0 {
		t.Errorf("%v allocations per lookup, want 0", n)
	}
}
