// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package cfg

import (
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func TestMistakesOfOptionsTogetherAreOnTheLineOfOneOfThem(t *testing.T) {
	var n int
	var on bool
	o := Options{"number": Int(&n, 0), "flag": Flag(&on), "other": Flag(&on)}
	o.ModulesOf("upstream.balancers", func(d *caddyfile.Dispenser) error { return Flag(&on)(d) })
	given := o.Record()
	d := caddyfile.NewTestDispenser("block {\n\n number 5\n flag\n}")
	d.Next()
	if err := o.Block(d, "block", nil); err != nil || n != 5 || !on {
		t.Fatalf("Block() = %v, number %d, flag %t", err, n, on)
	}
	if got := given.First("other", "number", "flag"); got != "number" {
		t.Errorf("First() = %q, want number", got)
	}
	if got := given.First("other", "present"); got != "" {
		t.Errorf("First() = %q of options that are not there", got)
	}
	for option, want := range map[string]string{
		"number": "number and 1, at Testfile:3", "flag": "flag and 1, at Testfile:4",
	} {
		if err := given.Errf(option, "%s and %d", option, 1); err.Error() != want {
			t.Errorf("Errf() = %v, want %s", err, want)
		}
	}
}
