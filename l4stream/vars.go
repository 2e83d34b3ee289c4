// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/geo"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/nginxmap"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/splitclients"
)

func init() {
	caddy.RegisterModule(Set{})
	caddy.RegisterModule(Map{})
	caddy.RegisterModule(Geo{})
	caddy.RegisterModule(SplitClients{})
}

// The handlers in this file define variables, {stream.vars.<name>}. All but set
// are evaluated when they are asked for, so they may use what later phases find
// out; the handlers themselves cost next to nothing.

// Set gives a variable a value when the session begins.
type Set struct {
	// The name of the variable.
	Name string `json:"name"`
	// The value, with placeholders.
	Value string `json:"value,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Set) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.set", New: func() caddy.Module { return new(Set) }}
}

// Provision checks the name.
func (h *Set) Provision(caddy.Context) error { return checkName(h.Name) }

// Phase implements Handler.
func (*Set) Phase() Phase { return PostAccept }

func (h *Set) defines() string { return h.Name }

// Handle implements Handler.
func (h *Set) Handle(s *Session) error {
	value := s.expand(h.Value)
	s.setVar(h.Name, func() string { return value })
	return nil
}

// UnmarshalCaddyfile reads `set <name> <value>`.
func (h *Set) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&h.Name, &h.Value) || d.NextArg() {
		return d.Err("set: expected <name> <value>")
	}
	if err := checkName(h.Name); err != nil {
		return d.Errf("set: %v", err)
	}
	return cfg.NoBlock(d, "set")
}

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}. \t") {
		return fmt.Errorf("variable name %q: expected a name without dots, spaces and braces", name)
	}
	return nil
}

// Map makes a variable out of another value: exact texts in any letter case,
// then wildcard host names (with `hostnames`), then regular expressions (`~`, or
// `~*` for any letter case) in their order.
type Map struct {
	// The name of the variable.
	Name string `json:"name"`
	// The value that is looked up, with placeholders.
	Source string `json:"source"`
	// Let patterns be wildcard host names: `*.example.com`, `example.*`,
	// `.example.com`.
	Hostnames bool `json:"hostnames,omitempty"`
	// The lines of the map; the pattern `default` is for what fits no other.
	// Values may hold placeholders, and captures of the expression as $1 or $name.
	Entries []nginxmap.Entry `json:"entries"`

	table *nginxmap.Map
}

// CaddyModule returns the Caddy module information.
func (Map) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.map", New: func() caddy.Module { return new(Map) }}
}

// Provision builds the table.
func (m *Map) Provision(caddy.Context) error {
	if err := checkName(m.Name); err != nil {
		return err
	}
	var err error
	m.table, err = nginxmap.New(m.Entries, m.Hostnames)
	return err
}

// Phase implements Handler.
func (*Map) Phase() Phase { return PostAccept }

func (m *Map) defines() string { return m.Name }

// Handle implements Handler.
func (m *Map) Handle(s *Session) error {
	s.setVar(m.Name, func() string {
		result := m.table.Lookup(s.expand(m.Source))
		return s.expand(result.Expand(nil))
	})
	return nil
}

// UnmarshalCaddyfile reads:
//
//	map <source> <name> {
//	    hostnames
//	    <pattern> <value>
//	    default <value>
//	}
func (m *Map) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&m.Source, &m.Name) || d.NextArg() {
		return d.Err("map: expected <source> <name>")
	}
	if err := checkName(m.Name); err != nil {
		return d.Errf("map: %v", err)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		e := nginxmap.Entry{Pattern: d.Val()}
		args := d.RemainingArgs()
		switch {
		case e.Pattern == "hostnames" && len(args) == 0:
			m.Hostnames = true
			continue
		case len(args) != 1:
			return d.Errf("map: %s: got %d values, expected one", e.Pattern, len(args))
		}
		e.Value = args[0]
		m.Entries = append(m.Entries, e)
	}
	if _, err := nginxmap.New(m.Entries, m.Hostnames); err != nil {
		return d.Errf("map %s: %v", m.Name, err)
	}
	return nil
}

// Geo makes a variable out of an address: the value of the longest network
// that holds it.
type Geo struct {
	// The name of the variable.
	Name string `json:"name"`
	// The address, with placeholders. Default: the client's.
	Source string `json:"source,omitempty"`
	// Entries are ranges `<first>-<last>` of IPv4 addresses, not networks.
	Ranges bool `json:"ranges,omitempty"`
	// The lines; the network `default` is for what is in no other.
	Entries []geo.Entry `json:"entries"`

	table *geo.Table
}

// CaddyModule returns the Caddy module information.
func (Geo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.geo", New: func() caddy.Module { return new(Geo) }}
}

// Provision builds the table.
func (g *Geo) Provision(ctx caddy.Context) error {
	if err := checkName(g.Name); err != nil {
		return err
	}
	table, warnings, err := geo.New(g.mode(), g.Entries)
	for _, w := range warnings {
		ctx.Logger().Warn(w)
	}
	g.table = table
	return err
}

func (g *Geo) mode() geo.Mode {
	if g.Ranges {
		return geo.Ranges
	}
	return geo.CIDR
}

// Phase implements Handler.
func (*Geo) Phase() Phase { return PostAccept }

func (g *Geo) defines() string { return g.Name }

// Handle implements Handler.
func (g *Geo) Handle(s *Session) error {
	s.setVar(g.Name, func() string {
		if g.Source == "" {
			value, _ := g.table.Lookup(s.Client())
			return value
		}
		value, _ := g.table.LookupText(s.expand(g.Source))
		return value
	})
	return nil
}

// UnmarshalCaddyfile reads:
//
//	geo [<source>] <name> {
//	    ranges
//	    default <value>
//	    <network> <value>
//	    delete <network>
//	}
func (g *Geo) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	args := d.RemainingArgs()
	switch len(args) {
	case 1:
		g.Name = args[0]
	case 2:
		g.Source, g.Name = args[0], args[1]
	default:
		return d.Errf("geo: got %d arguments, expected [<source>] <name>", len(args))
	}
	if err := checkName(g.Name); err != nil {
		return d.Errf("geo: %v", err)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		first := d.Val()
		args := d.RemainingArgs()
		switch {
		case first == "ranges" && len(args) == 0:
			g.Ranges = true
		case len(args) != 1:
			return d.Errf("geo: %s: got %d values, expected one", first, len(args))
		case first == "delete":
			g.Entries = append(g.Entries, geo.Entry{Network: args[0], Delete: true})
		default:
			g.Entries = append(g.Entries, geo.Entry{Network: first, Value: args[0]})
		}
	}
	if _, _, err := geo.New(g.mode(), g.Entries); err != nil {
		return d.Errf("geo %s: %v", g.Name, err)
	}
	return nil
}

// SplitClients makes a variable out of the hash of a value: each part of the
// clients gets one value, always the same for the same client.
type SplitClients struct {
	// The name of the variable.
	Name string `json:"name"`
	// The value that is hashed, with placeholders.
	Source string `json:"source"`
	// The shares, as `10%` or `0.5%`, and `*` for the rest; values are literal.
	Parts []splitclients.Part `json:"parts"`

	table *splitclients.Table
}

// CaddyModule returns the Caddy module information.
func (SplitClients) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.split_clients", New: func() caddy.Module { return new(SplitClients) }}
}

// Provision builds the table.
func (c *SplitClients) Provision(caddy.Context) error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	var err error
	c.table, err = splitclients.New(c.Parts)
	return err
}

// Phase implements Handler.
func (*SplitClients) Phase() Phase { return PostAccept }

func (h *SplitClients) defines() string { return h.Name }

// Handle implements Handler.
func (c *SplitClients) Handle(s *Session) error {
	s.setVar(c.Name, func() string { return c.table.Lookup(s.expand(c.Source)) })
	return nil
}

// UnmarshalCaddyfile reads:
//
//	split_clients <source> <name> {
//	    <share> <value>
//	    * <value>
//	}
func (c *SplitClients) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&c.Source, &c.Name) || d.NextArg() {
		return d.Err("split_clients: expected <source> <name>")
	}
	if err := checkName(c.Name); err != nil {
		return d.Errf("split_clients: %v", err)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		part := splitclients.Part{Share: d.Val()}
		var values []string
		if err := cfg.Strings(&values)(d); err != nil || len(values) != 1 {
			return d.Errf("split_clients: %s: expected one value", part.Share)
		}
		part.Value = values[0]
		c.Parts = append(c.Parts, part)
	}
	if _, err := splitclients.New(c.Parts); err != nil {
		return d.Errf("split_clients %s: %v", c.Name, err)
	}
	return nil
}

// Interface guards
var (
	_ Handler               = (*Set)(nil)
	_ caddyfile.Unmarshaler = (*Set)(nil)
	_ Handler               = (*Map)(nil)
	_ caddyfile.Unmarshaler = (*Map)(nil)
	_ Handler               = (*Geo)(nil)
	_ caddyfile.Unmarshaler = (*Geo)(nil)
	_ Handler               = (*SplitClients)(nil)
	_ caddyfile.Unmarshaler = (*SplitClients)(nil)
)
