// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Group is a set of servers that serve the same thing: nginx's `upstream {}`
// block.
type Group struct {
	// The servers, in order; the order breaks ties.
	Servers []*Server `json:"servers,omitempty"`

	// How a server is chosen. Default: `smooth_round_robin`.
	BalancerRaw json.RawMessage `json:"balancer,omitempty" caddy:"namespace=upstream.balancers inline_key=method"`

	// What takes a failing server out, and brings it back. Default: `passive`,
	// nginx's max_fails and fail_timeout.
	TrackerRaw json.RawMessage `json:"health_tracker,omitempty" caddy:"namespace=upstream.health_trackers inline_key=tracker"`

	// What asks the servers, at intervals, whether they are well. Each check can
	// take a server out, and only its own pass brings it back. Default: none.
	HealthChecksRaw []json.RawMessage `json:"health_checks,omitempty" caddy:"namespace=upstream.health_checks inline_key=check"`

	// What looks up the servers that have `resolve`. Default: `dns` with the
	// system's resolver.
	ResolverRaw json.RawMessage `json:"resolver,omitempty" caddy:"namespace=upstream.resolvers inline_key=resolver"`

	// What binds the sessions of clients to servers, whatever the method: `cookie`,
	// `route` or `learn`. HTTP only. Default: nothing.
	StickyRaw json.RawMessage `json:"sticky,omitempty" caddy:"namespace=upstream.sticky inline_key=mode"`

	// The idle connections to the servers that are kept for later requests.
	Keepalive *Keepalive `json:"keepalive,omitempty"`

	// Count servers that are down, draining or failed by a check when deciding whether a group has
	// only one server, which is never disabled. nginx does; by default, one
	// server beside others that cannot be used is as good as alone.
	SingleCountsDown bool `json:"single_counts_down,omitempty"`

	Guards

	// Keep the servers as the runtime API has changed them in Caddy's storage, over
	// restarts, until the list of servers in the configuration changes. Several
	// Caddys that share a storage and have the same list follow each other within
	// five seconds.
	State bool `json:"state,omitempty"`

	keeper  *keeper
	name    string
	lines   []line
	method  peer.Method
	tracker peer.Tracker
	runtime *Runtime
	digest  string
	config  string // as it was read

	configured []line // the lines, where stored ones are used

	sticky   Sticky
	affinity *Affinity

	resolver    Resolver
	resolverKey string
	checks      []checkup
}

// Keepalive is how a group keeps idle HTTP connections to its servers.
type Keepalive struct {
	// The number of idle connections kept, in total; 0 closes each connection
	// after its request. Default: 32 for each processor.
	Connections *int `json:"connections,omitempty"`

	// Keep the connections of each handler apart. Without `connections` they
	// are; with it, all handlers of the group share them.
	Local bool `json:"local,omitempty"`

	// The number of requests after which a connection is closed. Default: 1000.
	Requests int `json:"requests,omitempty"`

	// The age after which a connection is not kept again. Default: 1h.
	Time caddy.Duration `json:"time,omitempty"`

	// How long an idle connection is kept. Default: 60s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// What happens to a request that is sent on a kept connection and finds it
	// closed: `retry` (default) sends it once more to the same server on a new
	// connection, if it may be sent twice; `fail` counts a failure of the server
	// and goes on to the next, as nginx does.
	Stale string `json:"stale,omitempty"`
}

var groupName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

const (
	defaultMethod  = `{"method":"smooth_round_robin"}`
	defaultTracker = `{"tracker":"passive"}`

	defaultResolver = `{"resolver":"dns"}`
)

// provision loads the group's guests and looks up its servers. It changes
// nothing that is running, unless nothing is running.
func (g *Group) provision(ctx caddy.Context, name string) error {
	if !groupName.MatchString(name) {
		return fmt.Errorf("group name %q: expected only letters, digits, and _ . -", name)
	}
	g.name = name
	if err := g.Keepalive.validate(); err != nil {
		return fmt.Errorf("keepalive: %w", err)
	}
	config, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if err := g.validateGuards(); err != nil {
		return err
	}
	if err := g.checkTogether(); err != nil {
		return err
	}
	if err := g.loadGuests(ctx); err != nil {
		return err
	}
	if g.runtime, err = acquire(runtimeKey{name: name}); err != nil {
		return err
	}
	g.bindSticky()
	if g.lines, err = resolveLines(ctx, g.Servers, g.runtime); err != nil {
		return err
	}
	if g.State {
		if err := g.restore(ctx); err != nil {
			return err
		}
	}
	g.config = string(config)
	if err := g.settleDigest(); err != nil {
		return err
	}
	g.warn(ctx.Logger(&App{}))
	return g.runtime.propose(g.generation(), ctx.Logger(&App{}))
}

// settleDigest makes the digest by which generations are compared.
func (g *Group) settleDigest() error {
	resolved, err := json.Marshal(g.generation().config.Servers) // not those with resolve
	g.digest = g.config + string(resolved)
	return err
}

// loadGuests loads the balancing method and the health tracker.
func (g *Group) loadGuests(ctx caddy.Context) error {
	if g.BalancerRaw == nil {
		g.BalancerRaw = json.RawMessage(defaultMethod)
	}
	mod, err := ctx.LoadModule(g, "BalancerRaw")
	if err != nil {
		return missing("balancer", "method", "upstream.balancers", g.BalancerRaw, err)
	}
	var ok bool
	if g.method, ok = mod.(peer.Method); !ok {
		return fmt.Errorf("balancer %T is not a balancing method", mod)
	}
	if err := g.loadSticky(ctx); err != nil {
		return err
	}
	if err := g.loadResolver(ctx); err != nil {
		return err
	}
	if err := g.loadChecks(ctx); err != nil {
		return err
	}
	return g.loadTracker(ctx)
}

// loadResolver loads the resolver. The default one is loaded although no server
// has resolve, for one that the API adds; then it need not be in the build.
func (g *Group) loadResolver(ctx caddy.Context) error {
	raw := g.ResolverRaw
	if raw == nil {
		g.ResolverRaw = json.RawMessage(defaultResolver)
	}
	g.resolverKey = string(g.ResolverRaw)
	mod, err := ctx.LoadModule(g, "ResolverRaw")
	if err != nil {
		if raw == nil && !slices.ContainsFunc(g.Servers, func(s *Server) bool { return s != nil && s.Resolve }) {
			return nil
		}
		return missing("resolver", "resolver", "upstream.resolvers", json.RawMessage(g.resolverKey), err)
	}
	var ok bool
	if g.resolver, ok = mod.(Resolver); !ok {
		return fmt.Errorf("resolver %T is not a resolver", mod)
	}
	return nil
}

func (g *Group) loadTracker(ctx caddy.Context) error {
	if g.TrackerRaw == nil {
		g.TrackerRaw = json.RawMessage(defaultTracker)
	}
	mod, err := ctx.LoadModule(g, "TrackerRaw")
	if err != nil {
		return missing("health_tracker", "tracker", "upstream.health_trackers", g.TrackerRaw, err)
	}
	var ok bool
	if g.tracker, ok = mod.(peer.Tracker); !ok {
		return fmt.Errorf("health_tracker %T is not a health tracker", mod)
	}
	return nil
}

// missing explains a module that is not in the build, if that is the matter
// with the guest module that raw names by key.
func missing(field, key, namespace string, raw json.RawMessage, err error) error {
	var named map[string]any
	if json.Unmarshal(raw, &named) != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	name, _ := named[key].(string)
	id := namespace + "." + name
	if _, unknown := caddy.GetModule(id); unknown == nil || name == "" {
		return fmt.Errorf("%s: %w", field, err)
	}
	if absent := cfg.NotInBuild(id); absent != nil {
		return fmt.Errorf("%s: %w", field, absent)
	}
	var known []string
	for _, m := range caddy.GetModules(namespace) {
		known = append(known, m.ID.Name())
	}
	return fmt.Errorf("%s: unknown %s %q: expected %s", field, key, name, strings.Join(known, " or "))
}

func checkLines(lines []line) error {
	if !slices.ContainsFunc(lines, func(l line) bool { return !l.server.Backup }) {
		return errNoPrimary
	}
	ids := map[string]bool{}
	for _, l := range lines {
		if id := l.server.id(); ids[id] {
			return fmt.Errorf("server %q: duplicate id: give one of them another", id)
		} else {
			ids[id] = true
		}
	}
	return new(generation).with(lines).config.Validate()
}

var errNoPrimary = errors.New("no primary server: expected at least one server without backup")

func (g *Group) generation() *generation {
	gen := &generation{
		digest: g.digest,
		config: peer.Config{Method: g.method, Tracker: g.tracker, SingleCountsDown: g.SingleCountsDown},

		resolver: g.resolver, resolverKey: g.resolverKey, checks: g.checksNow(), keeper: g.keeper,
	}
	g.guard(&gen.config)
	if g.affinity != nil {
		gen.sticky, gen.config.Secret = true, g.affinity.Secret
	}
	return gen.with(g.lines)
}

func (k *Keepalive) validate() error {
	switch {
	case k == nil:
		return nil
	case k.Connections != nil && *k.Connections < 0:
		return fmt.Errorf("connections %d: must not be negative", *k.Connections)
	case k.Requests < 0:
		return fmt.Errorf("requests %d: must not be negative", k.Requests)
	case k.Time < 0:
		return fmt.Errorf("time %s: must not be negative", time.Duration(k.Time))
	case k.Timeout < 0:
		return fmt.Errorf("timeout %s: must not be negative", time.Duration(k.Timeout))
	case k.Connections != nil && *k.Connections == 0 && k.Local:
		return fmt.Errorf("local does nothing with 0 connections: leave it out")
	case k.Stale != "" && k.Stale != "retry" && k.Stale != "fail":
		return fmt.Errorf("stale %q: expected retry or fail", k.Stale)
	}
	if setting := k.moot(); setting != "" {
		return fmt.Errorf("%s does nothing with 0 connections: leave it out", setting)
	}
	return nil
}

// moot names a setting that does nothing because no connections are kept, as it
// is called in JSON.
func (k *Keepalive) moot() string {
	switch {
	case k.Connections == nil || *k.Connections != 0:
	case k.Requests != 0:
		return "requests"
	case k.Time != 0:
		return "time"
	case k.Timeout != 0:
		return "timeout"
	case k.Stale != "":
		return "stale"
	}
	return ""
}

// settings translates k for the transport.
func (k *Keepalive) settings() exchange.Keepalive {
	if k == nil {
		return exchange.Keepalive{}
	}
	return exchange.Keepalive{
		Connections: k.Connections, Local: k.Local, Requests: k.Requests,
		Time: time.Duration(k.Time), Timeout: time.Duration(k.Timeout),
	}
}
