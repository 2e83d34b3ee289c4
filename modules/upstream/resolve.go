// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Resolver looks up the servers that have `resolve`. It is a Caddy module in the
// namespace upstream.resolvers.
type Resolver interface {
	// Lookup answers a query. An answer without servers means that the name does
	// not exist, an error that nothing is known, so that nothing changes.
	Lookup(ctx context.Context, q Query) (Answer, error)

	// RetryAfter is how long to wait after an error.
	RetryAfter() time.Duration
}

// Query is what a server line asks for.
type Query struct {
	// Host is the name.
	Host string
	// Port is that of the line; 0 with Service.
	Port uint16
	// Service asks for the SRV records of a service of Host.
	Service string
}

// Answer is what a name has.
type Answer struct {
	Servers []Located
	// Valid is how long the answer holds.
	Valid time.Duration
}

// Located is one address of a name.
type Located struct {
	Addr netip.AddrPort
	// Host, Weight and Backup come from an SRV record; otherwise they are zero.
	Host   string
	Weight int
	Backup bool
}

// query returns what s asks for.
func (s *Server) query(address string) (Query, error) {
	if s.Service != "" {
		if !s.Resolve {
			return Query{}, fmt.Errorf("service= needs resolve")
		}
		if strings.Contains(address, ":") {
			return Query{}, fmt.Errorf("a port beside service=: expected a name alone, the ports come from the SRV records")
		}
		return Query{Host: address, Service: s.Service}, nil
	}
	host, port, err := splitHostPort(address)
	if err != nil {
		return Query{}, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return Query{}, fmt.Errorf("resolve beside an IP address: expected a host name")
	}
	return Query{Host: host, Port: port}, nil
}

// fromRecords returns the peers of a line for an answer.
func fromRecords(base peer.Server, s *Server, records []Located) []peer.Server {
	used := map[string]int{}
	out := make([]peer.Server, len(records))
	for i, r := range records {
		p := base
		p.Address = r.Addr.String()
		p.Name = p.Address
		p.ID = base.ID + "/" + p.Address
		if used[p.ID]++; used[p.ID] > 1 {
			p.ID += "#" + strconv.Itoa(used[p.ID])
		}
		if s.Service != "" {
			p.Line = r.Host
			p.Backup = p.Backup || r.Backup
			if s.Weight == nil || *s.Weight == 1 {
				p.Weight = r.Weight
			}
		}
		out[i] = p
	}
	return out
}

// lineKey names what a line asks for; lines of successive configurations with
// the same key are followed without a break.
func (s *Server) lineKey() string { return s.id() + " " + s.Address + " " + s.Service }

// follower asks for one line again and again. It belongs to the Runtime and
// ends with its context.
type follower struct {
	runtime  *Runtime
	key      string
	query    Query
	resolver Resolver
	cancel   context.CancelFunc
	failing  bool
}

// followLocked starts what the generation in force needs to be asked for, and
// ends the rest. Nothing is asked before a configuration is started, nor after
// the last has ended.
func (r *Runtime) followLocked() {
	wanted := map[string]bool{}
	if len(r.stack) > 0 && r.inForce != nil && r.inForce.resolver != nil {
		for _, l := range r.inForce.lines {
			if !l.server.Resolve {
				continue
			}
			key := r.inForce.resolverKey + l.server.lineKey()
			wanted[key] = true
			if r.followers[key] == nil {
				r.startLocked(key, l.server)
			}
		}
	}
	for key, f := range r.followers {
		if !wanted[key] {
			f.cancel()
			delete(r.followers, key)
		}
	}
}

func (r *Runtime) startLocked(key string, s *Server) {
	q, err := s.query(caddy.NewReplacer().ReplaceKnown(s.Address, ""))
	if err != nil {
		return // refused when the line was read
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{runtime: r, key: s.lineKey(), query: q, resolver: r.inForce.resolver, cancel: cancel}
	if r.followers == nil {
		r.followers = map[string]*follower{}
	}
	r.followers[key] = f
	go f.run(ctx)
}

// run asks until ctx ends.
func (f *follower) run(ctx context.Context) {
	for {
		wait := f.ask(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// ask asks once, applies the answer, and returns the time until the next question.
func (f *follower) ask(ctx context.Context) time.Duration {
	answer, err := f.resolver.Lookup(ctx, f.query)
	if ctx.Err() != nil {
		return time.Hour
	}
	r := f.runtime
	if err == nil {
		err = r.resolved(f.key, answer)
	}
	logger := r.logger.Load()
	fields := []zap.Field{zap.String("group", r.key.name), zap.String("name", f.query.Host)}
	if err != nil {
		if !f.failing {
			logger.Warn("looking up a server failed: its addresses stay as they are", append(fields, zap.Error(err))...)
		}
		f.failing = true
		return f.resolver.RetryAfter()
	}
	if f.failing {
		logger.Info("looking up a server works again", fields...)
	}
	f.failing = false
	return answer.Valid + time.Second
}

// resolved gives the lines that ask for key the addresses of an answer.
func (r *Runtime) resolved(key string, answer Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := make([]line, len(r.inForce.lines))
	copy(lines, r.inForce.lines)
	changed := false
	for i, l := range lines {
		if !l.server.Resolve || l.server.lineKey() != key {
			continue
		}
		base, err := l.server.base(l.server.Address)
		if err != nil {
			return err
		}
		peers := fromRecords(base, l.server, answer.Servers)
		if l.server.Service == "" {
			peers = inOrder(l.peers, peers)
		}
		if !equalPeers(peers, l.peers) {
			lines[i].peers = peers
			changed = true
		}
	}
	if !changed {
		return nil
	}
	r.logger.Load().Info("servers resolved", zap.String("group", r.key.name), zap.String("name", key), zap.Int("addresses", len(answer.Servers)))
	return r.replaceLocked(r.inForce.with(lines))
}

// inOrder keeps the order of the peers that stay and appends new ones, so that
// name servers that rotate their answers do not change the order of ties.
func inOrder(old, next []peer.Server) []peer.Server {
	out := make([]peer.Server, 0, len(next))
	left := map[string]int{}
	for i, p := range next {
		left[p.ID] = i
	}
	for _, p := range old {
		if i, ok := left[p.ID]; ok {
			out = append(out, next[i])
			delete(left, p.ID)
		}
	}
	for _, p := range next {
		if _, ok := left[p.ID]; ok {
			out = append(out, p)
		}
	}
	return out
}

func equalPeers(a, b []peer.Server) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// knownPeers are the peers of a line that resolves, before the first answer:
// those that the running configuration has for the same name, with the new
// line's parameters.
func (s *Server) knownPeers(base peer.Server, known []peer.Server) []peer.Server {
	records := make([]Located, 0, len(known))
	for _, k := range known {
		addr, err := netip.ParseAddrPort(k.Address)
		if err != nil {
			continue
		}
		r := Located{Addr: addr, Host: k.Line, Weight: k.Weight, Backup: k.Backup}
		if s.Service == "" {
			if _, port, err := splitHostPort(s.Address); err == nil {
				r.Addr = netip.AddrPortFrom(addr.Addr(), port)
			}
		}
		records = append(records, r)
	}
	return fromRecords(base, s, records)
}

// hostOnly is the name that a line asks for, without its port.
func hostOnly(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// peersOf returns the peers that lines asking for the same name have in force.
func (r *Runtime) peersOf(s *Server) []peer.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil {
		return nil
	}
	for _, l := range r.inForce.lines {
		if l.server.Resolve && l.server.Service == s.Service && hostOnly(l.server.Address) == hostOnly(s.Address) {
			return l.peers
		}
	}
	return nil
}
