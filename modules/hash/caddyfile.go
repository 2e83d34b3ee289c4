// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// UnmarshalCaddyfile reads the line:
//
//	hash <key> [consistent [balance_factor=<number>]]
func (m *Method) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return m.unmarshal(d, "hash")
}

// UnmarshalCaddyfile sets up the policy from:
//
//	lb_policy key_hash <key> [consistent [balance_factor=<number>]] {
//	    server <address> [weight=<n>] [max_fails=<n>] [fail_timeout=<duration>] ...
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := p.Method.unmarshal(d, "lb_policy key_hash"); err != nil {
		return err
	}
	return p.UnmarshalBlock(d, "key_hash")
}

func (m *Method) unmarshal(d *caddyfile.Dispenser, what string) error {
	if !d.NextArg() {
		return d.Errf("%s: the key is missing: expected text with placeholders, such as {http.request.uri}", what)
	}
	// Caddy knows the short names of placeholders in sites only.
	key := caddyfile.Segment{d.Token()}
	httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&key)
	m.Key = key[0].Text
	for d.NextArg() {
		arg := d.Val()
		factor, isFactor := strings.CutPrefix(arg, "balance_factor=")
		switch {
		case arg == "consistent" && !m.Consistent:
			m.Consistent = true
		case isFactor && m.BalanceFactor == 0:
			v, err := strconv.ParseFloat(factor, 64)
			if err != nil || !(v >= 1) {
				return d.Errf("%s: balance_factor %q: expected a number of 1 or more, such as 1.25", what, factor)
			}
			m.BalanceFactor = v
		case arg == "consistent" || isFactor:
			return d.Errf("%s: %s given twice", what, arg)
		default:
			return d.Errf("%s: unexpected argument %q: expected consistent or balance_factor=<number>", what, arg)
		}
	}
	if err := m.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}
