// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	// What groups use when their configuration does not say otherwise.
	_ "github.com/caddy-upstream/caddy-upstream/passivehealth"
	_ "github.com/caddy-upstream/caddy-upstream/smoothrr"
)

func init() { caddy.RegisterModule(App{}) }

// App proxies TCP and UDP: nginx's `stream {}`. Its servers run their handlers
// in nginx's phases and send sessions to the groups of the upstream app.
type App struct {
	// The servers, by a name that appears in logs only.
	Servers map[string]*Server `json:"servers,omitempty"`

	// How long sessions may go on after their configuration has ended: on a
	// reload without a limit by default, and when Caddy stops for the grace period
	// of the HTTP servers, or for 10s where there is none.
	ShutdownTimeout caddy.Duration `json:"shutdown_timeout,omitempty"`

	ctx      caddy.Context
	logger   *zap.Logger
	bindings []*binding
}

// defaultGrace is how long sessions may go on when the process exits.
const defaultGrace = 10 * time.Second

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream", New: func() caddy.Module { return new(App) }}
}

// Provision sets up the servers and their handlers; nothing listens yet.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger = ctx, ctx.Logger()
	if a.ShutdownTimeout < 0 {
		return fmt.Errorf("shutdown_timeout %s: must not be negative", time.Duration(a.ShutdownTimeout))
	}
	sets := map[string]*binding{}
	for _, name := range slices.SortedFunc(maps.Keys(a.Servers), byNumber) {
		s := a.Servers[name]
		if s == nil {
			return fmt.Errorf("server %s is null", name)
		}
		if err := s.provision(ctx, name, a.logger); err != nil {
			return fmt.Errorf("server %s: %w", s.label(name), err)
		}
		for _, address := range s.addresses {
			b := sets[address.key()]
			if b == nil {
				b = &binding{address: address}
				sets[address.key()] = b
			}
			if err := b.add(s); err != nil {
				return fmt.Errorf("server %s: %w", s.label(name), err)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		a.bindings = append(a.bindings, sets[key])
	}
	return nil
}

// label names a server in errors: a Caddyfile numbers its servers, and people
// know them by their addresses.
func (s *Server) label(name string) string {
	if len(s.Listen) == 0 {
		return name
	}
	return name + " (" + strings.Join(s.Listen, " ") + ")"
}

// Start begins to listen, or takes the sockets over from the configuration
// that runs.
func (a *App) Start() error {
	for _, s := range a.Servers {
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, b := range a.bindings {
		if err := b.open(a.logger); err != nil {
			return fmt.Errorf("listening on %s: %w", b.address, err)
		}
	}
	return nil
}

// Stop hands the sockets on or closes them. Sessions live on, until they end or
// the shutdown timeout is over; only when the process exits are they waited for.
func (a *App) Stop() error {
	err := a.close()
	timeout := time.Duration(a.ShutdownTimeout)
	if !caddy.Exiting() {
		outliving.add(a.Servers)
		if timeout > 0 {
			time.AfterFunc(timeout, a.abortSessions)
		}
		return err
	}
	if timeout == 0 {
		timeout = a.grace()
	}
	outliving.add(a.Servers)
	outliving.drain(timeout)
	return err
}

// outliving are the sessions of configurations that have ended.
var outliving ended

type ended struct {
	mu   sync.Mutex // guards list
	list []*registry
}

// add takes in the sessions of servers that are to go, and lets go of what has
// no sessions any more.
func (e *ended) add(servers map[string]*Server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = slices.DeleteFunc(e.list, (*registry).none)
	for _, s := range servers {
		e.list = append(e.list, &s.sessions)
	}
}

// drain waits at most for timeout until all sessions have ended, and then ends
// them.
func (e *ended) drain(timeout time.Duration) {
	e.mu.Lock()
	list := slices.Clone(e.list)
	e.mu.Unlock()
	var wait sync.WaitGroup
	for _, r := range list {
		wait.Go(func() { r.drain(timeout) })
	}
	wait.Wait()
}

// grace is the time that the HTTP servers have for the same thing.
func (a *App) grace() time.Duration {
	if app, err := a.ctx.AppIfConfigured("http"); err == nil {
		if d := app.(*caddyhttp.App).GracePeriod; d > 0 {
			return time.Duration(d)
		}
	}
	return defaultGrace
}

// Cleanup releases what Provision and Start have taken.
func (a *App) Cleanup() error { return a.close() }

// close gives the sockets back; it may be called more than once.
func (a *App) close() error {
	var errs []error
	for _, b := range a.bindings {
		errs = append(errs, b.close())
	}
	return errors.Join(errs...)
}

func (a *App) abortSessions() {
	for _, s := range a.Servers {
		s.sessions.abortAll()
	}
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

// byNumber orders the names of servers, which is also the order in which those of
// one address stand: by what is before the number at the end, then by that. srv2
// goes before srv10.
func byNumber(a, b string) int {
	x, y := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	m, _ := strconv.Atoi(a[len(x):])
	n, _ := strconv.Atoi(b[len(y):])
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(m, n), cmp.Compare(a, b))
}
