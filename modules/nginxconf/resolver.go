// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-upstream/caddy-upstream/modules/resolve"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// readResolver reads a resolver directive.
func readResolver(a *adapter, d *dir) (any, error) {
	dns := &resolve.DNS{}
	for _, p := range d.args {
		name, v, has := strings.Cut(p, "=")
		switch {
		case !has:
			if _, _, err := hostPort(p, 53); err != nil {
				return nil, d.errorf("%v", err)
			}
			dns.Addresses = append(dns.Addresses, p)
		case name == "valid":
			t, err := parseTime(v)
			if err != nil {
				return nil, d.errorf("valid: %v", err)
			}
			dns.Valid = caddy.Duration(t)
		case name == "ipv6" && (v == "on" || v == "off"):
			if v == "off" {
				dns.IPv6 = v
			}
		case name == "status_zone":
			a.warn(d, "status_zone: look-ups are not counted")
		default:
			return nil, d.errorf("invalid parameter %q", p)
		}
	}
	if dns.Addresses == nil {
		return nil, d.errorf("no name servers")
	}
	a.resolves = true
	return dns, nil
}

// resolvers gives the groups that look names up at run time their resolver, now
// that all directives have been read.
func (a *adapter) resolvers() {
	for _, g := range a.resolving {
		if !slices.ContainsFunc(g.config.Servers, func(s *upstream.Server) bool { return s.Resolve }) {
			continue
		}
		dns := value(g.scope, "resolver", (*resolve.DNS)(nil))
		_, zone := g.scope.values["zone"]
		switch {
		case dns == nil:
			a.errs = append(a.errs, g.at.errorf("no resolver defined to resolve names at run time"))
			continue
		case !zone:
			a.errs = append(a.errs, g.at.errorf("resolving names at run time requires upstream %q to be in shared memory: add zone", g.name))
			continue
		}
		own := *dns
		own.Timeout = caddy.Duration(value(g.scope, "resolver_timeout", 30*time.Second))
		g.config.ResolverRaw = caddyconfig.JSONModuleObject(own, "resolver", "dns", nil)
	}
}
