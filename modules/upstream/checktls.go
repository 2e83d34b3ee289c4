// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
)

// A group does not know how its servers are talked to: that is the business of
// the transports of its handlers. They tell it while their configuration is
// provisioned, after the group's own provision and before its start, so that its
// checks can do the same. Nothing is to be released: what they tell stays with the
// Group, which lives as long as its configuration.

// ServerTLS is how a handler talks TLS to servers.
type ServerTLS = clienttls.Client

// TLSFollower is a health check that talks to the servers as the handlers of its
// group do, as far as its own settings do not say how.
type TLSFollower interface {
	HealthCheck

	// FollowTLS tells it, before Watch, how a handler of the group talks to the
	// servers; nil is without TLS. It is called for each of them while their
	// configuration is provisioned, and returns an error if they differ so that
	// the check cannot know what to do.
	FollowTLS(c *ServerTLS) error

	// ServerTLS is how it will talk to the servers; nil is without.
	ServerTLS() *ServerTLS
}

// TellChecks tells the checks of a group how a handler, which is being
// provisioned, talks TLS to its servers. It is for fronts that are not
// reverse_proxy.
func TellChecks(ctx caddy.Context, group string, c *ServerTLS) error {
	g, err := groupOf(ctx, group)
	if err != nil {
		return err
	}
	return g.tellChecks(c)
}

// tellTransport tells them what a transport of reverse_proxy does.
func (g *Group) tellTransport(transport http.RoundTripper) error {
	c, known := clienttls.Of(transport)
	if !known {
		return nil
	}
	return g.tellChecks(c)
}

func (g *Group) tellChecks(c *ServerTLS) error {
	for _, k := range g.checks {
		if f, ok := k.check.(TLSFollower); ok {
			if err := f.FollowTLS(c); err != nil {
				return fmt.Errorf("group %s: health check %s: %w", g.name, k.rules.Name, err)
			}
		}
	}
	return nil
}

// checksNow returns the checks as they are, once the handlers are provisioned.
func (g *Group) checksNow() []checkup {
	out := slices.Clone(g.checks)
	for i := range out {
		if f, ok := out[i].check.(TLSFollower); ok {
			out[i].tls = clienttls.Number(f.ServerTLS())
		}
	}
	return out
}

// renew makes c ask as the configuration g says, which may be equal to the one
// before but for what its handlers do. Verdicts stay until there are new ones.
func (c *checking) renew(g *generation) {
	i := slices.IndexFunc(g.checks, func(k checkup) bool { return k.key == c.key })
	if i >= 0 && g.checks[i].tls != c.tls {
		c.stop()
		c.checkup = g.checks[i]
	}
}
