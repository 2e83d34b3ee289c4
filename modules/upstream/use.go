// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// Use returns the live state of a named group for a front that is not
// reverse_proxy, and takes a reference to it that Release gives back. Such a
// front knows no default port, so every server needs one. It knows which
// placeholders its sessions have, and tells WarnKey.
func Use(ctx caddy.Context, name string) (*Runtime, error) {
	g, err := groupOf(ctx, name)
	if unknown, ok := errors.AsType[errUnknownGroup](err); ok {
		return nil, fmt.Errorf("%w; an address needs a port", unknown)
	}
	if err != nil {
		return nil, err
	}
	if g.affinity != nil {
		return nil, fmt.Errorf("group %s has sticky, which works with HTTP requests: stream cannot use it; use hash or ip_hash, or a group of its own", name)
	}
	for _, s := range g.Servers {
		if err := s.needsPort(); err != nil {
			return nil, fmt.Errorf("group %s: %w", name, err)
		}
	}
	r, err := acquire(runtimeKey{name: name})
	if err != nil {
		return nil, err
	}
	if err := r.checkPorts(ctx, g); err != nil {
		_ = r.release()
		return nil, err
	}
	r.portless.Add(1)
	return r, nil
}

// checkPorts looks for ports in what was added at run time: in what g would leave in
// force, or, before anything runs, in what is stored, which is no reason not to
// start.
func (r *Runtime) checkPorts(ctx caddy.Context, g *Group) error {
	r.mu.Lock()
	running, lines := len(r.stack) > 0, g.lines
	if running && r.inForce.digest == g.digest {
		lines = r.inForce.lines
	}
	r.mu.Unlock()
	err := needPorts(lines)
	switch {
	case err == nil:
		return nil
	case running:
		return fmt.Errorf("group %s: %w; it was added at run time: remove it first", g.name, err)
	}
	return g.forgetStored(ctx, err)
}

// needsPort is the error of a server without a port where a stream uses the group.
func (s *Server) needsPort() error {
	if s.Service != "" || hasPort(s.Address) {
		return nil
	}
	return fmt.Errorf("server %s has no port: a group that stream uses needs one on every line", s.Address)
}

func needPorts(lines []line) error {
	for _, l := range lines {
		if err := l.server.needsPort(); err != nil {
			return err
		}
	}
	return nil
}

func hasPort(address string) bool {
	if strings.HasPrefix(address, "unix/") {
		return true
	}
	na, err := caddy.ParseNetworkAddress(address)
	return err == nil && na.StartPort != 0
}

// UseAddresses is Use for a list of addresses that has no name: round robin
// and the default health tracker. kind keeps the lists of different fronts
// apart; equal lists of one kind share their state.
func UseAddresses(ctx caddy.Context, kind string, addresses []string) (*Runtime, error) {
	g := &Group{}
	for i, a := range addresses {
		if !hasPort(a) {
			return nil, fmt.Errorf("address %s: the port is missing", a)
		}
		s := &Server{Address: a}
		if n := countOf(addresses[:i], a); n > 0 {
			s.ID = fmt.Sprintf("%s#%d", a, n+1)
		}
		g.Servers = append(g.Servers, s)
	}
	if err := g.loadGuests(ctx); err != nil {
		return nil, err
	}
	if err := registerMetrics(ctx); err != nil {
		return nil, err
	}
	list, err := json.Marshal([]any{kind, addresses})
	if err != nil {
		return nil, err
	}
	key := runtimeKey{name: notInNames.ReplaceAllString(addresses[0], "-"), list: string(list)}
	r, err := acquire(key)
	if err != nil {
		return nil, err
	}
	if g.lines, err = resolveLines(ctx, g.Servers, r); err == nil {
		g.digest = key.list
		err = r.propose(g.generation(), ctx.Logger(&App{}))
	}
	if err != nil {
		_ = r.release()
		return nil, err
	}
	r.portless.Add(1)
	return r, nil
}

func countOf(list []string, s string) int {
	n := 0
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

// Release gives back the reference that Use took.
func (r *Runtime) Release() error {
	r.portless.Add(-1)
	return r.release()
}

// Logger returns the logger of the group's events.
func (r *Runtime) Logger() *zap.Logger { return r.logger.Load() }
