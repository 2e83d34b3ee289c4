// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-upstream/caddy-upstream/modules/sticky"
)

// sticky binds clients to servers, whatever the method before it.
func (a *adapter) sticky(s *scope, d *dir) error {
	g := s.values["group"].(*group)
	if g.config.StickyRaw != nil {
		return d.errorf("it is duplicate: it may stand once in a block")
	}
	modes := map[string]func(*dir) (any, error){
		"cookie": a.stickyCookie, "route": a.stickyRoute, "learn": a.stickyLearn,
	}
	read := modes[d.args[0]]
	if read == nil {
		return d.errorf("invalid parameter %q: expected cookie, route or learn", d.args[0])
	}
	config, err := read(d)
	if err != nil {
		return err
	}
	g.config.StickyRaw = caddyconfig.JSONModuleObject(config, "mode", d.args[0], nil)
	return nil
}

func (a *adapter) stickyCookie(d *dir) (any, error) {
	if len(d.args) < 2 {
		return nil, d.errorf("the name of the cookie is missing")
	}
	c := sticky.Cookie{Name: d.args[1]}
	for _, p := range d.args[2:] {
		name, v, hasValue := strings.Cut(p, "=")
		switch {
		case p == "httponly":
			c.HTTPOnly = true
		case p == "secure":
			c.Secure = true
		case p == "expires=max":
			forever := caddy.Duration(sticky.Forever)
			c.Expires = &forever
		case name == "expires" && hasValue:
			t, err := parseTime(v)
			if err != nil {
				return nil, d.errorf("expires: %v", err)
			}
			expires := caddy.Duration(t)
			c.Expires = &expires
		case name == "path" && hasValue:
			c.Path = v
		case name == "domain" && hasValue:
			a.uses(d, v)
			c.Domain = template(v, nil)
		case name == "samesite" && hasValue:
			if !hasVariables(v) && !sticky.ValidSameSite(v) {
				return nil, d.errorf("invalid parameter %q: expected strict, lax or none", p)
			}
			a.uses(d, v)
			c.SameSite = template(v, nil)
		default:
			return nil, d.errorf("invalid parameter %q: expected expires=, domain=, path=, samesite=, httponly or secure", p)
		}
	}
	return c, nil
}

func (a *adapter) stickyRoute(d *dir) (any, error) {
	r := sticky.Route{}
	for _, v := range d.args[1:] {
		if !isVariable(v) {
			return nil, d.errorf("invalid parameter %q: expected a variable", v)
		}
		a.uses(d, v)
		r.Values = append(r.Values, template(v, nil))
	}
	if r.Values == nil {
		return nil, d.errorf("a variable with the name of the route is missing")
	}
	return r, nil
}

func (a *adapter) stickyLearn(d *dir) (any, error) {
	l := sticky.Learn{}
	for _, p := range d.args[1:] {
		name, v, _ := strings.Cut(p, "=")
		switch {
		case p == "header":
			l.Header = true
		case p == "sync":
			return nil, d.errorf("sync is not translated: sessions are not shared between machines; take it out")
		case (name == "create" || name == "lookup") && !isVariable(v):
			return nil, d.errorf("invalid parameter %q: expected %s= and a variable", p, name)
		case name == "create":
			a.uses(d, v)
			l.Create = append(l.Create, template(v, nil))
		case name == "lookup":
			a.uses(d, v)
			l.Lookup = append(l.Lookup, template(v, nil))
		case name == "timeout":
			t, err := parseTime(v)
			if err != nil || t == 0 {
				return nil, d.errorf("invalid parameter %q: expected a time", p)
			}
			l.Timeout = caddy.Duration(t)
		case name == "zone":
			zone, size, ok := strings.Cut(v, ":")
			n, err := parseSize(size)
			if !ok || zone == "" || err != nil {
				return nil, d.errorf("invalid parameter %q: expected zone=name:size", p)
			}
			if l.Zone, l.ZoneSize = zone, n; n < sticky.MinZoneSize {
				return nil, d.errorf("zone %q is too small: expected at least %dk", zone, sticky.MinZoneSize>>10)
			}
		default:
			return nil, d.errorf("invalid parameter %q: expected create=, lookup=, zone=, timeout= or header", p)
		}
	}
	if l.Create == nil || l.Lookup == nil || l.Zone == "" {
		return nil, d.errorf("create=, lookup= and zone= are needed")
	}
	return l, nil
}
