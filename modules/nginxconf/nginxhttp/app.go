// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/geo"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/nginxmap"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/splitclients"
)

func init() { caddy.RegisterModule(App{}) }

// App holds the variables that an nginx.conf defines for all servers.
type App struct {
	// The variables, by name without the dollar sign.
	Variables map[string]*Variable `json:"variables,omitempty"`
}

// Variable is one of nginx's `map`, `geo` and `split_clients`.
type Variable struct {
	Map   *Map   `json:"map,omitempty"`
	Geo   *Geo   `json:"geo,omitempty"`
	Split *Split `json:"split_clients,omitempty"`
}

// Map is nginx's `map`.
type Map struct {
	// The text that is looked up, with placeholders.
	Source string `json:"source"`
	// The lines, as in nginx.conf; values may hold $variables.
	Entries []nginxmap.Entry `json:"entries,omitempty"`
	// Patterns may be host names with a wildcard.
	Hostnames bool `json:"hostnames,omitempty"`
	// Look the value up each time it is used.
	Volatile bool `json:"volatile,omitempty"`

	table *nginxmap.Map
}

// Geo is nginx's `geo`.
type Geo struct {
	// The address that is looked up, with placeholders. Default: the client's.
	Address string `json:"address,omitempty"`
	// Entries are ranges instead of networks.
	Ranges  bool        `json:"ranges,omitempty"`
	Entries []geo.Entry `json:"entries,omitempty"`

	table *geo.Table
}

// Split is nginx's `split_clients`.
type Split struct {
	// The text that decides, with placeholders.
	Source string              `json:"source"`
	Parts  []splitclients.Part `json:"parts,omitempty"`

	table *splitclients.Table
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "nginx", New: func() caddy.Module { return new(App) }}
}

// Provision builds the tables.
func (a *App) Provision(ctx caddy.Context) error {
	for _, name := range slices.Sorted(maps.Keys(a.Variables)) {
		v := a.Variables[name]
		if v == nil {
			return fmt.Errorf("variable %s is null", name)
		}
		warnings, err := v.build()
		if err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
		for _, w := range warnings {
			ctx.Logger().Warn("variable " + name + ": " + w)
		}
	}
	return nil
}

func (v *Variable) build() (warnings []string, err error) {
	switch {
	case v.Map != nil:
		v.Map.table, err = nginxmap.New(v.Map.Entries, v.Map.Hostnames)
	case v.Geo != nil:
		mode := geo.CIDR
		if v.Geo.Ranges {
			mode = geo.Ranges
		}
		v.Geo.table, warnings, err = geo.New(mode, v.Geo.Entries)
	case v.Split != nil:
		v.Split.table, err = splitclients.New(v.Split.Parts)
	default:
		err = errors.New("expected one of map, geo and split_clients")
	}
	return warnings, err
}

// Check reports what provisioning v would say; for configurations that are
// being made.
func (v *Variable) Check() (warnings []string, err error) {
	c := *v
	return c.build()
}

// Start implements caddy.App.
func (*App) Start() error { return nil }

// Stop implements caddy.App.
func (*App) Stop() error { return nil }

// appOf returns the variables of the configuration, nil if there are none.
func appOf(ctx caddy.Context) (*App, error) {
	app, err := ctx.AppIfConfigured("nginx")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return app.(*App), nil
}

func (a *App) lookup(name string) *Variable {
	if a == nil {
		return nil
	}
	return a.Variables[name]
}

func (v *Variable) volatile() bool { return v.Map != nil && v.Map.Volatile }

// value computes the variable for a request.
func (v *Variable) value(st *state) string {
	switch {
	case v.Map != nil:
		res := v.Map.table.Lookup(st.expand(v.Map.Source))
		for _, name := range res.Names() {
			if st.named == nil {
				st.named = map[string]string{}
			}
			st.named[name], _ = res.Capture(name)
		}
		return res.Expand(st.value)
	case v.Geo != nil:
		if v.Geo.Address == "" {
			text, _ := v.Geo.table.Lookup(clientAddr(st.r))
			return text
		}
		address := st.expand(v.Geo.Address)
		if a, err := netip.ParseAddr(address); err == nil {
			text, _ := v.Geo.table.Lookup(a)
			return text
		}
		text, _ := v.Geo.table.LookupText(address)
		return text
	default:
		return v.Split.table.Lookup(st.expand(v.Split.Source))
	}
}

// Interface guards
var (
	_ caddy.App         = (*App)(nil)
	_ caddy.Provisioner = (*App)(nil)
)
