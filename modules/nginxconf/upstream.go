// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// group is an upstream block, or the implicit one of a proxy_pass.
type group struct {
	at     *dir
	name   string // as written
	id     string // its name in Caddy
	config *upstream.Group
	scope  *scope // of an upstream block
	warned bool   // of keepalive beside grpc_pass
}

var notInIDs = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// upstream translates an upstream block.
func (a *adapter) upstream(s *scope, d *dir) error {
	name := d.args[0]
	kind, known := inUpstream, a.groups
	if s.kind == inStream {
		kind, known = inStreamUpstream, a.streamGroups
	}
	if known[strings.ToLower(name)] != nil {
		return d.errorf("duplicate upstream %q", name)
	}
	in := newScope(s, kind, d)
	g := a.addGroup(d, name, known)
	g.scope = in
	a.resolving = append(a.resolving, g)
	if kind == inUpstream {
		a.order = append(a.order, g)
	}
	in.values["group"] = g
	before := len(a.errs)
	a.walk(in, d.block)
	if len(a.errs) > before {
		return nil // has been said
	}
	primary := slices.ContainsFunc(g.config.Servers, func(s *upstream.Server) bool { return !s.Backup })
	if !primary {
		return d.errorf("no servers in upstream %q: expected at least one server without backup", name)
	}
	if kind == inStreamUpstream {
		return nil
	}
	return a.keepalive(in, d, g)
}

func (a *adapter) addGroup(d *dir, name string, to map[string]*group) *group {
	id := strings.Trim(notInIDs.ReplaceAllString(name, "-"), "-")
	if id == "" {
		id = "upstream"
	}
	for n, base := 2, id; a.ids[id]; n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	a.ids[id] = true
	g := &group{at: d, name: name, id: id, config: &upstream.Group{SingleCountsDown: true}}
	to[strings.ToLower(name)] = g
	return g
}

// keepalive translates keepalive and what belongs to it.
func (a *adapter) keepalive(s *scope, d *dir, g *group) error {
	k := &upstream.Keepalive{Stale: "fail"}
	g.config.Keepalive = k
	words, written := own[[]string](s, "keepalive")
	number := 0
	switch {
	case written:
		n, err := strconv.Atoi(words[0])
		if err != nil || n < 0 {
			return d.errorf("keepalive: invalid number %q", words[0])
		}
		number = n
		if len(words) == 2 {
			if words[1] != "local" {
				return d.errorf("keepalive: invalid parameter %q: expected local", words[1])
			}
			k.Local = true
		}
	case a.version.atLeast(1, 29, 7):
		number, k.Local = 32, true
	}
	number *= a.workers
	k.Connections = &number
	if number == 0 {
		*k = upstream.Keepalive{Connections: &number}
		a.warnMootKeepalive(d)
		return nil
	}
	if n, ok := own[int](s, "keepalive_requests"); ok {
		k.Requests = n
	} else if !a.version.atLeast(1, 19, 10) {
		k.Requests = 100
	}
	if t, ok := own[time.Duration](s, "keepalive_time"); ok {
		k.Time = caddy.Duration(t)
	}
	if t, ok := own[time.Duration](s, "keepalive_timeout"); ok {
		k.Timeout = caddy.Duration(t)
	}
	return nil
}

// warnMootKeepalive warns of what an upstream block says of connections that are
// not kept; nginx takes it in silence.
func (a *adapter) warnMootKeepalive(d *dir) {
	for _, sub := range d.block {
		switch sub.name {
		case "keepalive_requests", "keepalive_time", "keepalive_timeout":
			a.warn(sub, "it does nothing: this block keeps no connections to its servers")
		case "keepalive":
			if len(sub.args) == 2 {
				a.warn(sub, "%s does nothing: this block keeps no connections to its servers", sub.args[1])
			}
		}
	}
}

// warnGRPCKeepalive warns of what an upstream block says of connections where it is
// used by grpc_pass.
func (a *adapter) warnGRPCKeepalive(g *group) {
	if g.warned || g.scope == nil {
		return
	}
	g.warned = true
	for _, sub := range g.at.block {
		switch sub.name {
		case "keepalive", "keepalive_requests", "keepalive_time", "keepalive_timeout":
			a.warn(sub, "it does nothing for grpc_pass: over HTTP/2 one connection to each server is kept")
		}
	}
}

// serverParameters are those of a server line in upstream with a value.
var serverParameters = map[string]func(s *upstream.Server, value string) error{
	"weight": func(s *upstream.Server, v string) error { return number(v, 1, func(n int) { s.Weight = &n }) },
	"max_fails": func(s *upstream.Server, v string) error {
		return number(v, 0, func(n int) { s.MaxFails = &n })
	},
	"max_conns": func(s *upstream.Server, v string) error { return number(v, 0, func(n int) { s.MaxConns = n }) },
	"fail_timeout": func(s *upstream.Server, v string) error {
		t, err := parseTime(v)
		if err == nil {
			d := caddy.Duration(t)
			s.FailTimeout = &d
		}
		return err
	},
	"slow_start": func(s *upstream.Server, v string) error {
		t, err := parseTime(v)
		s.SlowStart = caddy.Duration(t)
		return err
	},
	"service": func(s *upstream.Server, v string) error {
		if s.Service = v; v == "" {
			return errors.New("expected the name of a service")
		}
		return nil
	},
	"route": func(s *upstream.Server, v string) error {
		if s.Route = v; v == "" || len(v) > 32 {
			return errors.New("expected 1 to 32 characters")
		}
		return nil
	},
}

// serverFlags are those without one.
var serverFlags = map[string]func(*upstream.Server){
	"backup":  func(s *upstream.Server) { s.Backup = true },
	"down":    func(s *upstream.Server) { s.Down = true },
	"drain":   func(s *upstream.Server) { s.Drain = true },
	"resolve": func(s *upstream.Server) { s.Resolve = true },
}

func number(v string, least int, set func(int)) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < least {
		return errNumber
	}
	set(n)
	return nil
}

// upstreamServer translates a server line of an upstream block.
func (a *adapter) upstreamServer(s *scope, d *dir) error {
	g := s.values["group"].(*group)
	if g.config.State {
		return d.errorf("the servers of an upstream block are in it or in the file of state, not in both")
	}
	address, err := serverAddress(d.args[0])
	service := slices.ContainsFunc(d.args, func(p string) bool { return strings.HasPrefix(p, "service=") })
	if err == nil && s.kind == inStreamUpstream && !hasPort(d.args[0]) && !service {
		return d.errorf("no port in %q", d.args[0])
	}
	if err != nil {
		return d.errorf("%v", err)
	}
	srv := &upstream.Server{Address: address}
	for _, p := range d.args[1:] {
		if err := serverParameter(s, srv, p); err != nil {
			return d.errorf("%v", err)
		}
	}
	if srv.Service != "" {
		if !srv.Resolve || hasPort(d.args[0]) {
			return d.errorf("service needs the parameter resolve, and an address without a port")
		}
		srv.Address = d.args[0]
	}
	same := 1
	for _, other := range g.config.Servers {
		if other.Address == address {
			same++
		}
	}
	if same > 1 {
		srv.ID = address + "#" + strconv.Itoa(same)
	}
	g.config.Servers = append(g.config.Servers, srv)
	return nil
}

// serverParameter translates a word of a server line of the upstream block s.
func serverParameter(s *scope, srv *upstream.Server, p string) error {
	name, value, hasValue := strings.Cut(p, "=")
	if method, plain := s.values["plain method"]; plain && (p == "backup" || name == "slow_start") {
		return fmt.Errorf("the method %s before it does not support the parameter %q", method, p)
	}
	if s.kind == inStreamUpstream && (p == "drain" || name == "route") {
		return fmt.Errorf("invalid parameter %q: it is for http", p)
	}
	if set := serverFlags[p]; set != nil {
		set(srv)
		return nil
	}
	set := serverParameters[name]
	if set == nil || !hasValue {
		return fmt.Errorf("invalid parameter %q: expected one of %s=, %s", p,
			strings.Join(slices.Sorted(maps.Keys(serverParameters)), "=, "), strings.Join(slices.Sorted(maps.Keys(serverFlags)), ", "))
	}
	if err := set(srv, value); err != nil {
		return fmt.Errorf("invalid parameter %q: %w", p, err)
	}
	return nil
}

// workerProcesses matters for keepalive, which is a number per process.
func (a *adapter) workerProcesses(_ *scope, d *dir) error {
	if d.args[0] == "auto" {
		a.workers = runtime.NumCPU()
		a.warn(d, "keepalive is counted for %d processes, the processors of this machine", a.workers)
		return nil
	}
	n, err := strconv.Atoi(d.args[0])
	if err != nil || n < 1 || n > 4096 {
		return d.errorf("invalid number %q: expected auto or 1 to 4096", d.args[0])
	}
	a.workers = n
	return nil
}
