// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// colours of the states, as ANSI codes.
var colours = map[string]string{
	"up": "32", "unhealthy": "31", "down": "90", "draining": "33", "full": "35", "removed": "90", "unresolved": "33",
}

// table prints groups for a person.
func table(w io.Writer, groups []upstream.GroupState, colour bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "GROUP\tSERVER\t%s\tWEIGHT\tCONNS\tREQUESTS\tFAILURES\tLAST ERROR\n", paint("STATE", "", colour))
	for _, g := range groups {
		for _, s := range g.Servers {
			state := s.State.State
			if s.State.UnhealthyFor != "" {
				state += " " + s.State.UnhealthyFor
			}
			if s.State.ClosesIn != "" {
				state += " " + s.State.ClosesIn
			}
			if s.Backup {
				state += " (backup)"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", g.Name, s.ID,
				paint(state, s.State.State, colour), weight(s), s.State.Conns,
				s.State.Picks, s.State.Failures, s.State.LastError)
		}
	}
	return t.Flush()
}

// paint colours a cell. All cells of a column get a code of equal length, for
// the width of a column counts codes, too.
func paint(text, state string, colour bool) string {
	if !colour {
		return text
	}
	code := colours[state]
	if code == "" {
		code = "39" // the terminal's own
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// weight shows the effective weight beside the configured one while they differ.
func weight(s upstream.ServerState) string {
	if s.State.EffectiveWeight == int64(s.Weight) {
		return strconv.Itoa(s.Weight)
	}
	return fmt.Sprintf("%d/%d", s.State.EffectiveWeight, s.Weight)
}
