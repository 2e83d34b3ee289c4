// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

func init() { httpcaddyfile.RegisterGlobalOption("upstream", parseGroup) }

// parseGroup reads the global option `upstream`, once for each group:
//
//	upstream <name> {
//	    [<method> [<args...>]]
//	    server <address> [<parameter>=<value>...]
//	    keepalive <connections> [local] | off
//	    ...
//	}
func parseGroup(d *caddyfile.Dispenser, existing any) (any, error) {
	app := new(App)
	if existing != nil {
		e := existing.(httpcaddyfile.App)
		if err := json.Unmarshal(e.Value, app); err != nil {
			return nil, err
		}
	}
	d.Next()
	args := d.RemainingArgs()
	switch {
	case len(args) == 0:
		if err := app.unmarshal(d); err != nil {
			return nil, err
		}
		return httpcaddyfile.App{Name: "upstream", Value: caddyconfig.JSON(app, nil)}, nil
	case len(args) != 1:
		return nil, d.Errf("upstream: got %d arguments, expected the name of a group", len(args))
	case !groupName.MatchString(args[0]):
		return nil, d.Errf("upstream %q: expected a name of only letters, digits, and _ . -", args[0])
	case app.Groups[args[0]] != nil:
		return nil, d.Errf("upstream %s: group given twice", args[0])
	}
	g := new(Group)
	if err := g.unmarshal(d, args[0]); err != nil {
		return nil, err
	}
	if app.Groups == nil {
		app.Groups = map[string]*Group{}
	}
	app.Groups[args[0]] = g
	return httpcaddyfile.App{Name: "upstream", Value: caddyconfig.JSON(app, nil)}, nil
}

// unmarshal reads the block of a global option `upstream` without a name: what
// holds for all groups.
func (a *App) unmarshal(d *caddyfile.Dispenser) error {
	if a.ResolverRaw != nil {
		return d.Err("upstream without the name of a group given twice")
	}
	options := cfg.Options{"resolver": func(d *caddyfile.Dispenser) error {
		return parseResolver(d, &a.ResolverRaw)
	}}
	if err := options.Block(d, "upstream without the name of a group", nil); err != nil {
		return err
	}
	if a.ResolverRaw == nil {
		return d.Err("upstream: expected the name of a group, or a block with a resolver for all groups")
	}
	return nil
}

// parseResolver reads a line `resolver ...`.
func parseResolver(d *caddyfile.Dispenser, dst *json.RawMessage) error {
	mod, err := caddyfile.UnmarshalModule(d, "upstream.resolvers.dns")
	if err != nil {
		return err
	}
	*dst = caddyconfig.JSONModuleObject(mod, "resolver", "dns", nil)
	return nil
}

// unmarshal reads the block of a group.
func (g *Group) unmarshal(d *caddyfile.Dispenser, name string) error {
	ids := ids{}
	primary := false
	var routed *caddyfile.Dispenser // at the first server with route
	var keepalive Keepalive
	options := cfg.Options{
		"server": func(d *caddyfile.Dispenser) error {
			s, err := parseServer(d)
			if err != nil {
				return err
			}
			if err := ids.add(d, s); err != nil {
				return err
			}
			if s.Route != "" && routed == nil {
				at := *d
				routed = &at
			}
			primary = primary || !s.Backup
			g.Servers = append(g.Servers, s)
			return nil
		},
		"keepalive":          keepalive.unmarshal,
		"keepalive_requests": cfg.Int(&keepalive.Requests, 1),
		"keepalive_time":     cfg.Duration(&keepalive.Time),
		"keepalive_timeout":  cfg.Duration(&keepalive.Timeout),
		"keepalive_stale":    cfg.Word(&keepalive.Stale, "retry", "fail"),
		"single_counts_down": cfg.OnOff(&g.SingleCountsDown),
		"state":              cfg.Flag(&g.State),
		"sticky":             g.parseSticky,
		"resolver":           func(d *caddyfile.Dispenser) error { return parseResolver(d, &g.ResolverRaw) },
		"health_check":       g.parseHealthCheck,
		"health_tracker": func(d *caddyfile.Dispenser) error {
			raw, err := parseTracker(d)
			g.TrackerRaw = raw
			return err
		},
	}
	g.guardOptions(options)
	options.ModulesOf("upstream.balancers", func(d *caddyfile.Dispenser) error {
		if g.BalancerRaw != nil {
			return d.Errf("balancing method given twice in upstream %s: %s", name, d.Val())
		}
		method := d.Val()
		mod, err := caddyfile.UnmarshalModule(d, "upstream.balancers."+method)
		if err != nil {
			return err
		}
		g.BalancerRaw = caddyconfig.JSONModuleObject(mod, "method", method, nil)
		return nil
	})
	given := options.Record()
	if err := options.Block(d, "upstream "+name, cfg.Repeatable{"server": true, "health_check": true}); err != nil {
		return err
	}
	if err := g.checkTogether(); err != nil {
		return routed.Errf("upstream %s: %v", name, err)
	}
	if setting := keepalive.moot(); setting != "" {
		option := "keepalive_" + setting
		return given.Errf(option, "upstream %s: %s does nothing beside keepalive off: each request has its own connection", name, option)
	}
	if !primary {
		return d.Errf("upstream %s: no primary server: expected at least one server without backup", name)
	}
	if keepalive != (Keepalive{}) {
		g.Keepalive = &keepalive
	}
	return nil
}

// parseHealthCheck reads a line `health_check ...`.
func (g *Group) parseHealthCheck(d *caddyfile.Dispenser) error {
	raw, err := parseCheck(d)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(g.HealthChecksRaw, func(x json.RawMessage) bool { return rawKey(x) == rawKey(raw) }) {
		return d.Err("health_check: given twice with the same parameters")
	}
	g.HealthChecksRaw = append(g.HealthChecksRaw, raw)
	return nil
}

// checkFlags are the parameters of http checks without a value, which are no
// kinds; `tls` is one.
var checkFlags = []string{"mandatory", "persistent", "tls_off", "tls_insecure_skip_verify"}

// parseCheck reads `health_check [<kind>] ...`; the kind is http if the first
// word is a parameter. The dispenser stands on the first word.
func parseCheck(d *caddyfile.Dispenser) ([]byte, error) {
	const namespace = "upstream.health_checks"
	kind := "http"
	if d.NextArg() {
		if strings.Contains(d.Val(), "=") || slices.Contains(checkFlags, d.Val()) {
			d.Prev()
		} else {
			kind = d.Val()
		}
	}
	id := namespace + "." + kind
	if _, err := caddy.GetModule(id); err != nil {
		if absent := cfg.NotInBuild(id); absent != nil {
			return nil, d.Errf("health_check: %v", absent)
		}
		var known []string
		for _, m := range caddy.GetModules(namespace) {
			known = append(known, m.ID.Name())
		}
		return nil, d.Errf("health_check: unknown kind %q: expected %s, or parameters of http", kind, strings.Join(known, ", "))
	}
	mod, err := caddyfile.UnmarshalModule(d, id)
	if err != nil {
		return nil, err
	}
	return caddyconfig.JSONModuleObject(mod, "check", kind, nil), nil
}

// parseTracker reads `health_tracker <name> ...`; the dispenser stands on the
// first word.
func parseTracker(d *caddyfile.Dispenser) ([]byte, error) {
	name, mod, err := cfg.Module(d, d.Val(), "upstream.health_trackers", "health tracker")
	if err != nil {
		return nil, err
	}
	return caddyconfig.JSONModuleObject(mod, "tracker", name, nil), nil
}

// unmarshal reads `keepalive <connections> [local]` or `keepalive off`.
func (k *Keepalive) unmarshal(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	local := len(args) == 2 && args[1] == "local"
	switch {
	case len(args) == 0:
		return d.Err("keepalive: got no arguments, expected <connections> [local] or off")
	case len(args) == 1 && args[0] == "off":
		k.Connections = new(int)
		return nil
	case len(args) > 1 && !local, args[0] == "off":
		return d.Errf("keepalive: got %q, expected <connections> [local] or off", strings.Join(args, " "))
	}
	n, err := cfg.ParseInt(args[0], 0)
	if err != nil {
		return d.Errf("keepalive: %v", err)
	}
	k.Connections, k.Local = &n, local
	if err := (&Keepalive{Connections: &n, Local: local}).validate(); err != nil {
		return d.Errf("keepalive: %v", err)
	}
	return nil
}

// ids are those of the servers of a block.
type ids map[string]bool

// add finds an id that is there already; d stands on the server's line.
func (ids ids) add(d *caddyfile.Dispenser, s *Server) error {
	id := cmp.Or(s.ID, s.Address)
	if ids[id] {
		return d.Errf("server %s: duplicate id %q: give one of them another with id=", s.Address, id)
	}
	ids[id] = true
	return nil
}

// parseServer reads a server line; the dispenser stands on the word server.
func parseServer(d *caddyfile.Dispenser) (*Server, error) {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return nil, d.Err("server: the address is missing")
	}
	s := &Server{Address: args[0]}
	if _, ok := strings.CutPrefix(args[0], "unix/"); !ok && strings.Contains(args[0], "=") {
		return nil, d.Errf("server: unexpected %q: expected the address first", args[0])
	}
	if err := CheckAddress(args[0]); err != nil {
		return nil, d.Errf("server %s: %v", args[0], err)
	}
	params := cfg.Params{
		"id":            {Set: func(v string) error { s.ID = v; return nil }},
		"weight":        {Set: intParam(&s.Weight, 1)},
		"max_fails":     {Set: intParam(&s.MaxFails, 0)},
		"max_conns":     {Set: func(v string) (err error) { s.MaxConns, err = cfg.ParseInt(v, 0); return err }},
		"fail_timeout":  {Set: func(v string) error { return durationParam(&s.FailTimeout, v) }},
		"backup":        {Flag: true, Set: flagParam(&s.Backup)},
		"down":          {Flag: true, Set: flagParam(&s.Down)},
		"drain":         {Flag: true, Set: flagParam(&s.Drain)},
		"drain_timeout": {Set: func(v string) error { return durationParam(&s.DrainTimeout, v) }},
		"slow_start":    {Set: func(v string) error { return plainDuration(&s.SlowStart, v) }},
		"route":         {Set: func(v string) error { s.Route = v; return nil }},
		"probe":         {Set: probeParam(&s.Probe)},
		"resolve":       {Flag: true, Set: flagParam(&s.Resolve)},
		"service":       {Set: func(v string) error { s.Service = v; return nil }},
	}
	if err := params.Parse(args[1:]); err != nil {
		return nil, d.Errf("server %s: %v", s.Address, err)
	}
	if _, err := s.base(s.Address); err != nil {
		return nil, d.Errf("server %s: %v", s.Address, err)
	}
	if s.Resolve || s.Service != "" {
		if _, err := s.query(s.Address); err != nil && !strings.Contains(s.Address, "{") {
			return nil, d.Errf("server %s: %v", s.Address, err)
		}
	}
	if d.NextBlock(d.Nesting()) {
		return nil, d.Errf("server %s: parameters stand on the line, not in a block", s.Address)
	}
	return s, nil
}

var errZeroWeight = errors.New("0: expected 1 or more; use down or drain to take a server out")

func intParam(dst **int, low int) func(string) error {
	return func(v string) error {
		n, err := cfg.ParseInt(v, low)
		if err != nil && low == 1 && v == "0" {
			return errZeroWeight
		}
		*dst = &n
		return err
	}
}

func flagParam(dst *bool) func(string) error {
	return func(string) error { *dst = true; return nil }
}

func durationParam(dst **caddy.Duration, v string) error {
	d, err := cfg.ParseDuration(v, 0)
	c := caddy.Duration(d)
	*dst = &c
	return err
}

// parseGroupName reads the rest of a line that names a group.
func parseGroupName(d *caddyfile.Dispenser, what string) (string, error) {
	args := d.RemainingArgs()
	switch {
	case len(args) != 1:
		return "", d.Errf("%s: got %d arguments, expected the name of a group", what, len(args))
	case !groupName.MatchString(args[0]):
		return "", d.Errf("%s: %q is not the name of a group: expected only letters, digits, and _ . -", what, args[0])
	}
	return args[0], cfg.NoBlock(d, what)
}
