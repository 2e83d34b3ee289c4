// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package sticky

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/dustin/go-humanize"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

// arguments reads the rest of the line, after which no block may stand. Caddy knows the short names of
// placeholders in sites only.
func arguments(d *caddyfile.Dispenser) (out []string, err error) {
	d.Next()
	what := "sticky " + d.Val()
	short := httpcaddyfile.NewShorthandReplacer()
	for d.NextArg() {
		token := caddyfile.Segment{d.Token()}
		short.ApplyToSegment(&token)
		out = append(out, token[0].Text)
	}
	return out, cfg.NoBlock(d, what)
}

// UnmarshalCaddyfile reads the rest of the line:
//
//	sticky cookie <name> [expires=<duration>|max] [domain=<domain>] [path=<path>]
//	    [httponly] [secure] [samesite=strict|lax|none] [secret=<text>]
func (c *Cookie) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	args, err := arguments(d)
	if err != nil {
		return err
	}
	if len(args) == 0 || strings.Contains(args[0], "=") {
		return d.Err("sticky cookie: the name of the cookie is missing")
	}
	if c.Name = args[0]; !validName(c.Name) {
		return d.Errf("sticky cookie: %q is not the name of a cookie", c.Name)
	}
	text := func(dst *string) func(string) error {
		return func(v string) error {
			if *dst = v; !validValue(v) {
				return fmt.Errorf("%q: must not have control characters or semicolons", v)
			}
			return nil
		}
	}
	flag := func(dst *bool) func(string) error {
		return func(string) error { *dst = true; return nil }
	}
	params := cfg.Params{
		"expires":  {Set: c.parseExpires},
		"domain":   {Set: text(&c.Domain)},
		"path":     {Set: text(&c.Path)},
		"httponly": {Flag: true, Set: flag(&c.HTTPOnly)},
		"secure":   {Flag: true, Set: flag(&c.Secure)},
		"samesite": {Set: c.parseSameSite},
		"secret":   {Set: func(v string) error { c.Secret = v; return nil }},
	}
	if err := params.Parse(args[1:]); err != nil {
		return d.Errf("sticky cookie: %v", err)
	}
	return nil
}

func (c *Cookie) parseExpires(v string) error {
	expires := caddy.Duration(Forever)
	if v != "max" {
		d, err := cfg.ParseDuration(v, 0)
		if err != nil {
			return err
		}
		expires = caddy.Duration(d)
	}
	c.Expires = &expires
	return nil
}

func (c *Cookie) parseSameSite(v string) error {
	if c.SameSite = v; !strings.Contains(v, "{") && !ValidSameSite(v) {
		return fmt.Errorf("unexpected %q: expected strict, lax or none", v)
	}
	return nil
}

// UnmarshalCaddyfile reads the rest of the line:
//
//	sticky route <value...>
func (x *Route) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	var err error
	if x.Values, err = arguments(d); err != nil {
		return err
	}
	if err := x.Validate(); err != nil {
		return d.Errf("%s", strings.Replace(err.Error(), ": values", "", 1))
	}
	return nil
}

// UnmarshalCaddyfile reads the rest of the line; create and lookup may stand
// more than once:
//
//	sticky learn create=<value> lookup=<value> zone=<name>:<size> [timeout=<duration>] [header]
func (x *Learn) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	params := cfg.Params{
		"create": {}, "lookup": {}, // below
		"zone": {Set: x.parseZone},
		"timeout": {Set: func(v string) error {
			t, err := cfg.ParseDuration(v, 1)
			x.Timeout = caddy.Duration(t)
			return err
		}},
		"header": {Flag: true, Set: func(string) error { x.Header = true; return nil }},
	}
	args, err := arguments(d)
	if err != nil {
		return err
	}
	var others []string
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case name == "create" && value != "":
			x.Create = append(x.Create, value)
		case name == "lookup" && value != "":
			x.Lookup = append(x.Lookup, value)
		default:
			others = append(others, arg)
		}
	}
	if err := params.Parse(others); err != nil {
		return d.Errf("sticky learn: %v", err)
	}
	for name, values := range map[string][]string{"create": x.Create, "lookup": x.Lookup} {
		if len(values) > 0 {
			if err := placeholders("sticky learn: "+name, values); err != nil {
				return d.Errf("%v", err)
			}
		}
	}
	switch {
	case x.Create == nil:
		return d.Err("sticky learn: create= is missing: expected a placeholder such as {http.upstream.cookie.session}")
	case x.Lookup == nil:
		return d.Err("sticky learn: lookup= is missing: expected a placeholder such as {http.request.cookie.session}")
	case x.Zone == "":
		return d.Err("sticky learn: zone= is missing: expected <name>:<size>, such as sessions:1MiB")
	}
	return nil
}

// parseZone reads <name>:<size>; sizes as nginx writes them are those of 1024.
func (x *Learn) parseZone(v string) error {
	name, size, ok := strings.Cut(v, ":")
	if !ok || name == "" {
		return errors.New("expected <name>:<size>, such as sessions:1MiB")
	}
	if strings.HasSuffix(size, "k") || strings.HasSuffix(size, "m") {
		size += "ib"
	}
	n, err := humanize.ParseBytes(size)
	switch {
	case err != nil || n > 1<<40:
		return fmt.Errorf("%q is not a size: expected a number of bytes such as 1MiB", size)
	case n < MinZoneSize:
		return fmt.Errorf("%s is too small: expected at least 32KiB", size)
	}
	x.Zone, x.ZoneSize = name, int64(n)
	return nil
}
