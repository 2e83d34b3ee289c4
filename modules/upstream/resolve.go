// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

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

// lineText is the address of s with its placeholders replaced.
func lineText(s *Server) string {
	address, err := settle(s.Address)
	if err != nil {
		return s.Address // refused when the line was read
	}
	return address
}

// asks is query for a line that has been read.
func (s *Server) asks() (Query, error) { return s.query(lineText(s)) }

// query returns what s asks for.
func (s *Server) query(address string) (Query, error) {
	if s.Service != "" && !s.Resolve {
		return Query{}, fmt.Errorf("service= needs resolve")
	}
	if s.Service != "" && strings.Contains(address, ":") {
		return Query{}, fmt.Errorf("a port beside service=: expected a name alone, the ports come from the SRV records")
	}
	host, port, path, err := splitAddress(address)
	if err != nil {
		return Query{}, err
	}
	if _, err := netip.ParseAddr(host); err == nil || path != "" {
		return Query{}, fmt.Errorf("resolve: expected a host name, and not an address that needs no look-up")
	}
	if s.Service != "" {
		port = 0
	}
	return Query{Host: host, Port: port, Service: s.Service}, nil
}

// name is what the query is about, for the log.
func (q Query) name() string {
	if q.Service != "" {
		return q.Service + " of " + q.Host
	}
	return q.Host
}

// located returns the peers of s for an answer.
func (s *Server) located(records []Located) ([]peer.Server, error) {
	base, err := s.base(lineText(s))
	if err != nil {
		return nil, err
	}
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
	return out, nil
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
	q, err := s.asks()
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
		err = r.resolved(ctx, f.key, answer.Servers)
	}
	logger := r.logger.Load()
	fields := []zap.Field{zap.String("group", r.key.name), zap.String("name", f.query.name())}
	if err != nil {
		if !f.failing {
			logger.Warn("looking up a server failed: it keeps its addresses", append(fields, zap.Error(err))...)
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

// resolved gives the line that asks for key the addresses of an answer, unless
// the follower that asked has been ended.
func (r *Runtime) resolved(ctx context.Context, key string, found []Located) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	i := slices.IndexFunc(r.inForce.lines, func(l line) bool { return l.server.Resolve && l.server.lineKey() == key })
	if i < 0 {
		return nil
	}
	lines := slices.Clone(r.inForce.lines)
	l := &lines[i]
	peers, err := l.server.located(found)
	if err != nil {
		return err
	}
	if l.server.Service == "" {
		peers = inOrder(l.peers, peers)
	}
	before := l.peers
	l.peers, l.found = peers, found
	if slices.Equal(peers, before) {
		r.enforcedLocked(r.inForce.with(lines))
		return nil
	}
	if err := r.replaceLocked(r.inForce.with(lines)); err != nil {
		return err
	}
	fields := []zap.Field{zap.String("group", r.key.name), zap.String("server", l.server.id()), zap.Strings("addresses", addressesOf(peers))}
	if len(peers) == 0 {
		r.logger.Load().Warn("the name of a server has no addresses", fields...)
	} else {
		r.logger.Load().Info("server resolved", fields...)
	}
	return nil
}

func addressesOf(peers []peer.Server) []string {
	out := make([]string, len(peers))
	for i := range peers {
		out[i] = peers[i].Address
	}
	return out
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

// resolvedLocked returns g with the addresses that are known in its lines with
// resolve: what lines that ask for the same name have in force, with the new
// line's parameters.
func (r *Runtime) resolvedLocked(g *generation) *generation {
	if r.inForce == nil || !slices.ContainsFunc(g.lines, func(l line) bool { return l.server.Resolve }) {
		return g
	}
	lines := slices.Clone(g.lines)
	for i := range lines {
		if lines[i].server.Resolve {
			r.recallLocked(&lines[i])
		}
	}
	return g.with(lines)
}

// recallLocked gives l the last answer that a line in force had to its question.
func (r *Runtime) recallLocked(l *line) {
	q, err := l.server.asks()
	if err != nil {
		return // refused when the line was read
	}
	for _, known := range r.inForce.lines {
		if k, err := known.server.asks(); err != nil || !known.server.Resolve || k.Host != q.Host || k.Service != q.Service {
			continue
		}
		l.found = slices.Clone(known.found)
		for i := range l.found {
			if q.Service == "" {
				l.found[i].Addr = netip.AddrPortFrom(l.found[i].Addr.Addr(), q.Port)
			}
		}
		l.peers, _ = l.server.located(l.found)
		return
	}
}
