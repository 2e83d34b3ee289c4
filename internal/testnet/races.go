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

// access is one side of a race: "read" or "write", and the functions from the one
// that touches the memory outwards.
type access []string

// begins reports whether a begins as one of the patterns does, where "" stands
// for anything.
func (a access) begins(patterns ...access) bool {
	return slices.ContainsFunc(patterns, func(p access) bool {
		for i := range p {
			if i >= len(a) || p[i] != "" && p[i] != a[i] {
				return false
			}
		}
		return true
	})
}

// known are the races of Caddy v2.11.9 itself that tests have met. In each both
// sides are told by the function that touches the memory, which is Caddy's, and
// by what makes the race Caddy's own. None needs anything of ours.
var known = []struct{ one, other []access }{
	// The TLS app makes a context, a WaitGroup and a ticker in Start. Another app
	// may have asked it before that for certificates, for apps start in any
	// order: the HTTP app does so, and so does stream. Then an event may be
	// emitted meanwhile, which, if it is logged, calls CaddyModule, a method of
	// the value and not of the pointer: the call copies the app, those three
	// fields with it.
	{
		one:   []access{{"write", "caddytls.(*TLS).Start()"}, {"write", "caddytls.(*TLS).keepStorageClean()"}},
		other: []access{{"read", "caddytls.(*TLS).CaddyModule()", "caddyevents.(*App).Emit()", "caddytls.(*TLS).onEvent()"}},
	},
	// The clean-up of reverse_proxy sends a close frame on the client's
	// connection, and another goroutine copies to it: both count the bytes.
	{
		one:   []access{{"", "caddyhttp.(*hijackedConn).Write()", "caddyhttp/reverseproxy.writeCloseControl()"}},
		other: []access{{"", "caddyhttp.(*hijackedConn).Write()"}, {"", "caddyhttp.(*hijackedConn).ReadFrom()"}, {"", "caddyhttp.(*responseRecorder).Size()"}},
	},
	// A transport over HTTP/2 closes the request's body while another goroutine
	// reads it, to end that; reverse_proxy's wrapper of the body counts in Read
	// what it looks at in Close.
	{
		one:   []access{{"", "caddyhttp/reverseproxy.(*bodyNopCloserIfNotRead).Close()"}},
		other: []access{{"", "caddyhttp/reverseproxy.(*bodyNopCloserIfNotRead).Read()"}},
	},
}

// ofCaddy reports whether a report of the race detector is one that is known.
func ofCaddy(report string) bool {
	a := accesses(report)
	if len(a) != 2 {
		return false
	}
	for _, k := range known {
		if a[0].begins(k.one...) && a[1].begins(k.other...) || a[1].begins(k.one...) && a[0].begins(k.other...) {
			return true
		}
	}
	return false
}

var accessLine = regexp.MustCompile(`^(?:Previous )?(?i:(read|write)) at 0x[0-9a-f]+ by `)

// accesses reads what follows lines like "Previous read at 0x00c00032a680 by
// goroutine 35:" up to an empty line: a function, where it is, and so on. Names
// of Caddy's modules lose what they all begin with.
func accesses(report string) []access {
	var found []access
	inside := false
	for line := range strings.Lines(report) {
		line = strings.TrimRight(line, "\n")
		m := accessLine.FindStringSubmatch(line)
		name, function := strings.CutPrefix(line, "  ")
		switch {
		case m != nil:
			found, inside = append(found, access{strings.ToLower(m[1])}), true
		case line == "":
			inside = false
		case inside && function && !strings.HasPrefix(name, " "):
			last := len(found) - 1
			found[last] = append(found[last], strings.TrimPrefix(name, "github.com/caddyserver/caddy/v2/modules/"))
		}
	}
	return found
}
