// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package nginxmap

import "testing"

func TestALookupOfATextDoesNotAllocate(t *testing.T) {
	m := build(t, true, "a.example.com => a", "*.example.org => b", "www.* => c", "~^x => d", "default => e")
	for _, k := range []string{"A.example.com", "Q.example.org", "www.foo", "xyz", "nothing"} {
		if n := testing.AllocsPerRun(100, func() { m.Lookup(k) }); n != 0 {
			t.Errorf("%v allocations to look up %q, want 0", n, k)
		}
	}
}
