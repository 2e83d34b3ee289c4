// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// StaticPool makes a selection policy out of a balancing method and the list
// of upstreams (`to`) of a reverse_proxy handler. Handlers with the same list
// and the same options share their live state, also over a reload. A list has no
// name: one that a reload changes, in its addresses or in an option, is another
// list to it, and begins with all servers up and new counts. Servers that shall
// keep what is known of them need a group. It is embedded in the policies of the
// methods.
type StaticPool struct {
	// Options of the handler's upstreams, matched by address. An upstream
	// without options here has the defaults: weight 1, max_fails 1, fail_timeout
	// 10s.
	Servers []*Server `json:"servers,omitempty"`

	// What takes a failing server out, and brings it back. Default: `passive`,
	// nginx's max_fails and fail_timeout.
	TrackerRaw json.RawMessage `json:"health_tracker,omitempty" caddy:"namespace=upstream.health_trackers inline_key=tracker"`

	*selector
	runtime *Runtime
}

// Provision sets up the pool over the handler's upstreams, to be balanced by
// method. kind is the name of the policy.
func (p *StaticPool) Provision(ctx caddy.Context, kind string, method Method) error {
	h := ParentHandler(ctx)
	switch {
	case h == nil:
		return fmt.Errorf("policy %s works in a reverse_proxy handler only", kind)
	case h.DynamicUpstreamsRaw != nil:
		return fmt.Errorf("policy %s needs a static list of upstreams (to); for servers that change use a group: lb_policy upstream <group>", kind)
	case len(h.Upstreams) == 0:
		return fmt.Errorf("policy %s: no upstreams (to): expected the addresses of the servers", kind)
	}
	if err := p.settleAddresses(h.Upstreams); err != nil {
		return err
	}
	servers, err := p.peers(h.Upstreams)
	if err != nil {
		return err
	}
	g := &Group{TrackerRaw: p.TrackerRaw}
	if err := g.loadTracker(ctx); err != nil {
		return err
	}
	config := peer.Config{Servers: servers, Method: method, Tracker: g.tracker}
	if err := config.Validate(); err != nil {
		return err
	}
	if err := registerMetrics(ctx); err != nil {
		return err
	}
	list, err := json.Marshal([]any{kind, method, p.TrackerRaw, servers})
	if err != nil {
		return err
	}
	key := runtimeKey{name: notInNames.ReplaceAllString(servers[0].Name, "-"), list: string(list)}
	if p.runtime, err = acquire(key); err != nil {
		return err
	}
	logger := ctx.Logger(&App{})
	if err := p.runtime.propose(&generation{digest: key.list, config: config}, logger); err != nil {
		return err
	}
	p.selector = newSelector(p.runtime, logger)
	warnKey(logger, key.name, "http", method, inHTTP)
	p.bindUpstreams(h.Upstreams)
	return p.attach(ctx, h, nil)
}

// settleAddresses replaces the placeholders that have a value now. Caddy would
// replace them for each request, and those of the request too.
func (p *StaticPool) settleAddresses(pool reverseproxy.UpstreamPool) error {
	var err error
	for _, u := range pool {
		if u.Dial, err = settle(u.Dial); err != nil {
			return fmt.Errorf("upstream %w", err)
		}
	}
	for i, s := range p.Servers {
		if s == nil {
			return fmt.Errorf("server %d is null", i)
		}
		if s.Address, err = settle(s.Address); err != nil {
			return fmt.Errorf("server %w", err)
		}
	}
	return nil
}

// groupOnly refuses the options that do nothing in the list of a handler, which is
// never changed while it runs and is bound to by nobody.
func (s *Server) groupOnly() error {
	switch {
	case s.Route != "":
		return errors.New("route is for sticky sessions, which need a group: lb_policy upstream <group>")
	case s.DrainTimeout != nil:
		return errors.New("drain_timeout is for servers that are taken out at run time, which needs a group: lb_policy upstream <group>")
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// peers returns one peer for each upstream, with the options of the server
// that has its address.
func (p *StaticPool) peers(pool reverseproxy.UpstreamPool) ([]peer.Server, error) {
	options := map[string]*Server{}
	for _, s := range p.Servers {
		if options[s.Address] != nil {
			return nil, fmt.Errorf("server %s given twice", s.Address)
		}
		if err := s.groupOnly(); err != nil {
			return nil, fmt.Errorf("server %s: %w", s.Address, err)
		}
		options[s.Address] = s
	}
	used := map[string]int{}
	out := make([]peer.Server, len(pool))
	primary := false
	for i, u := range pool {
		s := options[u.Dial]
		if s == nil {
			s = &Server{Address: u.Dial}
		}
		base, err := s.base(u.Dial)
		if err != nil {
			return nil, fmt.Errorf("server %s: %w", u.Dial, err)
		}
		used[u.Dial]++
		if n := used[u.Dial]; n > 1 {
			base.ID = fmt.Sprintf("%s#%d", base.ID, n)
		}
		base.Address, base.Name = u.Dial, u.Dial
		if path, ok := strings.CutPrefix(u.Dial, "unix/"); ok {
			base.Name = "unix:" + path
		}
		out[i] = base
		primary = primary || !base.Backup
	}
	for _, s := range p.Servers {
		if used[s.Address] == 0 {
			return nil, fmt.Errorf("server %s is not in the list of upstreams (to): expected one that is, such as %s", s.Address, pool[0].Dial)
		}
	}
	if !primary {
		return nil, fmt.Errorf("no primary server: expected at least one server without backup")
	}
	return out, nil
}

// bindUpstreams connects the peers with the handler's own upstreams, so that
// Caddy's health checks are honoured.
func (p *StaticPool) bindUpstreams(pool reverseproxy.UpstreamPool) {
	of := make(map[*peer.Peer]*reverseproxy.Upstream, len(pool))
	byID := map[string]*peer.Peer{}
	for _, x := range p.runtime.group.Peers() {
		byID[x.ID()] = x
	}
	servers, _ := p.peers(pool) // checked before
	for i, s := range servers {
		of[byID[s.ID]] = pool[i]
	}
	p.usable = func(x *peer.Peer) bool { return of[x].Available() }
	p.upstreamOf = func(x *peer.Peer) *reverseproxy.Upstream { return of[x] }
}

// Cleanup releases the live state.
func (p *StaticPool) Cleanup() error {
	if p.runtime == nil {
		return nil
	}
	r := p.runtime
	p.runtime = nil
	return r.release()
}

// Select implements reverseproxy.Selector.
func (p *StaticPool) Select(_ reverseproxy.UpstreamPool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	return p.pick(w, r)
}

// UnmarshalBlock reads the block of the static policy kind:
//
//	lb_policy <kind> {
//	    server <address> [weight=<n>] [max_fails=<n>] ...
//	    health_tracker <name>
//	}
func (p *StaticPool) UnmarshalBlock(d *caddyfile.Dispenser, kind string) error {
	seen, ids := map[string]bool{}, ids{}
	options := cfg.Options{
		"server": func(d *caddyfile.Dispenser) error {
			s, err := parseServer(d)
			if err != nil {
				return err
			}
			if seen[s.Address] {
				return d.Errf("server %s given twice", s.Address)
			}
			if err := s.groupOnly(); err != nil {
				return d.Errf("server %s: %v", s.Address, err)
			}
			if err := ids.add(d, s); err != nil {
				return err
			}
			seen[s.Address] = true
			p.Servers = append(p.Servers, s)
			return nil
		},
		"health_tracker": func(d *caddyfile.Dispenser) error {
			raw, err := parseTracker(d)
			p.TrackerRaw = raw
			return err
		},
	}
	return options.Block(d, "lb_policy "+kind, cfg.Repeatable{"server": true})
}
