// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package cfg

import "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

// Given are options that were written, each standing where it was, for mistakes
// that only all of them together show.
type Given map[string]*caddyfile.Dispenser

// Record makes the options of o note where they are written, from now on.
func (o Options) Record() Given {
	given := Given{}
	for name, set := range o {
		if set == nil {
			continue
		}
		o[name] = func(d *caddyfile.Dispenser) error {
			at := *d
			given[name] = &at
			return set(d)
		}
	}
	return given
}

// First returns the first of the options that was given, or "".
func (g Given) First(options ...string) string {
	for _, name := range options {
		if g[name] != nil {
			return name
		}
	}
	return ""
}

// Errf is an error on the line of an option that was given.
func (g Given) Errf(option, format string, args ...any) error {
	return g[option].Errf(format, args...)
}
