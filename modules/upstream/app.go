// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

func init() { caddy.RegisterModule(App{}) }

// App holds the named groups of servers that `lb_policy upstream` and
// `proxy_pass` send traffic to. The live state of a group is kept while a
// configuration that names it is in use, over reloads and failed reloads.
type App struct {
	// The groups, by name. Names consist of letters, digits and `_ . -`.
	Groups map[string]*Group `json:"groups,omitempty"`

	// What looks up the servers that have `resolve` in groups without a `resolver`
	// of their own. Default: `dns` with the system's resolver.
	ResolverRaw json.RawMessage `json:"resolver,omitempty" caddy:"namespace=upstream.resolvers inline_key=resolver"`

	logger *zap.Logger
	pushed map[string]*generation
	events *emitter
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream", New: func() caddy.Module { return new(App) }}
}

// Provision sets up the groups. Their servers' names are looked up here.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	if err := registerMetrics(ctx); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if err := a.loadEvents(ctx); err != nil {
		return err
	}
	resolver := slices.Clone(a.ResolverRaw)
	if resolver != nil { // groups load copies of their own; this one is for its errors
		if _, err := ctx.LoadModule(a, "ResolverRaw"); err != nil {
			return missing("resolver", "resolver", "upstream.resolvers", resolver, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Groups)) {
		g := a.Groups[name]
		if g == nil {
			return fmt.Errorf("group %s is null", name)
		}
		if g.ResolverRaw == nil {
			g.ResolverRaw = slices.Clone(resolver)
		}
		if err := g.provision(ctx, name); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
	}
	return a.checkZones()
}

// Start brings the configuration of the groups into force.
func (a *App) Start() error {
	a.pushed = map[string]*generation{}
	a.events.start()
	for name, g := range a.Groups {
		gen := g.generation()
		g.runtime.emitTo(a.events)
		if err := g.runtime.push(gen, a.logger); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
		a.pushed[name] = gen
		g.runtime.share()() // stores the list that has won
	}
	return nil
}

// Stop ends the configuration; an older one that still runs is in force again.
func (a *App) Stop() error {
	for _, g := range a.Groups {
		if g != nil && g.runtime != nil {
			g.runtime.emitNoMore(a.events)
		}
	}
	a.events.stop()
	for name, gen := range a.pushed {
		a.Groups[name].runtime.drop(gen)
		a.Groups[name].runtime.share()() // that of a configuration which is back
	}
	a.pushed = nil
	return nil
}

// Cleanup releases the groups. It also runs after a Provision that failed
// half-way, and without Stop after a Start that failed.
func (a *App) Cleanup() error {
	errs := []error{a.Stop()}
	for _, g := range a.Groups {
		if g != nil && g.runtime != nil {
			errs = append(errs, g.runtime.release())
			g.runtime = nil
		}
	}
	return errors.Join(errs...)
}

// group returns the group of that name, or an error that says which there are.
func (a *App) group(name string) (*Group, error) {
	if g := a.Groups[name]; g != nil {
		return g, nil
	}
	known := "no group is configured"
	if len(a.Groups) > 0 {
		known = "known groups: " + strings.Join(slices.Sorted(maps.Keys(a.Groups)), ", ")
	}
	return nil, errUnknownGroup{name, known}
}

type errUnknownGroup struct{ name, known string }

func (e errUnknownGroup) Error() string { return fmt.Sprintf("unknown group %q: %s", e.name, e.known) }

// groupOf returns a group of the configuration that is being provisioned.
func groupOf(ctx caddy.Context, name string) (*Group, error) {
	app, err := ctx.AppIfConfigured("upstream")
	switch {
	case errors.Is(err, caddy.ErrNotConfigured):
		return nil, errUnknownGroup{name, "the upstream app is not configured"}
	case err != nil:
		return nil, err
	}
	return app.(*App).group(name)
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
