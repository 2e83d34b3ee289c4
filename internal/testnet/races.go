// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"regexp"
	"slices"
	"strings"
)

// checkRaces fails the test if the race detector spoke in the child, of anything
// but what is known of Caddy itself.
func (p *Process) checkRaces() {
	if p.races {
		return
	}
	for _, report := range strings.Split(p.Text(), "WARNING: DATA RACE")[1:] {
		report, _, _ = strings.Cut(report, "==================")
		if !ofCaddy(report) {
			p.races = true
			p.t.Errorf("data race in %s", p.name)
			return
		}
	}
}

// access matches the stack of one of the two accesses that race, up to the third
// function: the first is the one that touches the memory.
var access = regexp.MustCompile(`(?m)^(?:Previous )?(?i:(read|write)) at 0x[0-9a-f]+ by .*:\n  (\S+)\n.*\n  (\S+)\n.*\n  (\S+)\n`)

const caddyModules = "github.com/caddyserver/caddy/v2/modules/"

// ofCaddy knows one race of Caddy v2.11.9. Its TLS app makes a context, a
// WaitGroup and a ticker in Start. Another app may have asked it before that for
// certificates, for apps start in any order: the HTTP app does so, and so does
// stream. Then an event may be emitted meanwhile, which, if it is logged, calls
// CaddyModule, a method of the value and not of the pointer: the call copies the
// app, those three fields with it.
//
// Both accesses must be those, by the function that touches the memory, and
// the read must come by way of an event. Neither runs through code of ours.
func ofCaddy(report string) bool {
	found := access.FindAllStringSubmatch(report, -1)
	if len(found) != 2 {
		return false
	}
	slices.SortFunc(found, func(a, b []string) int { return strings.Compare(strings.ToLower(a[1]), strings.ToLower(b[1])) })
	read, write := found[0], found[1]
	return strings.EqualFold(read[1], "read") && strings.EqualFold(write[1], "write") &&
		slices.Equal(read[2:], []string{
			caddyModules + "caddytls.(*TLS).CaddyModule()",
			caddyModules + "caddyevents.(*App).Emit()",
			caddyModules + "caddytls.(*TLS).onEvent()",
		}) &&
		(write[2] == caddyModules+"caddytls.(*TLS).Start()" || write[2] == caddyModules+"caddytls.(*TLS).keepStorageClean()")
}
