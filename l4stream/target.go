// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// target is where a proxy_pass leads: to one group, or to the group that
// placeholders name.
type target struct {
	text    string            // with placeholders, empty for a fixed group
	name    string            // of a fixed group
	runtime *upstream.Runtime // of a fixed group or list of addresses
	fixed   *peer.Group       // it stays usable after the configuration's end

	ctx    caddy.Context
	exists func(name string) bool // what sessions have
	allow  *networks
	mu     sync.Mutex // guards what follows
	named  map[string]*upstream.Runtime
	closed bool
}

func (t *target) provision(ctx caddy.Context, p *ProxyPass) error {
	switch {
	case len(p.To) == 0:
		return errors.New("to: expected a group or addresses")
	case len(p.To) == 1 && strings.Contains(p.To[0], "{"):
		t.text, t.ctx, t.named = p.To[0], ctx, map[string]*upstream.Runtime{}
		var err error
		if len(p.AllowDynamic) > 0 {
			t.allow, err = parseNetworks(p.AllowDynamic)
		}
		return err
	}
	var err error
	if t.isGroup(p) {
		t.name = p.To[0]
		t.runtime, err = upstream.Use(ctx, t.name)
	} else {
		t.runtime, err = upstream.UseAddresses(ctx, "stream", p.To)
	}
	if err != nil {
		return err
	}
	t.fixed = t.runtime.Group()
	return nil
}

// isGroup reports whether p leads to one group, which it names.
func (t *target) isGroup(p *ProxyPass) bool {
	return t.text == "" && len(p.To) == 1 && !strings.ContainsAny(p.To[0], ":/")
}

// checkKey warns of placeholders in the group's key for which exists is false; for
// groups that placeholders name, once they are.
func (t *target) checkKey(ctx caddy.Context, exists func(name string) bool) {
	t.exists = exists
	if t.name != "" {
		upstream.WarnKey(ctx, t.name, "stream", exists)
	}
}

func (t *target) release() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	var errs []error
	if t.runtime != nil {
		errs = append(errs, t.runtime.Release())
	}
	for _, r := range t.named {
		errs = append(errs, r.Release())
	}
	return errors.Join(errs...)
}

// group returns the group for s. For an address from placeholders it returns
// that alone.
func (t *target) group(s *Session) (*peer.Group, string, error) {
	if t.fixed != nil {
		return t.fixed, "", nil
	}
	name := s.expand(t.text)
	if !strings.ContainsAny(name, ":/") {
		r, err := t.use(name)
		if err != nil {
			return nil, "", err
		}
		return r.Group(), "", nil
	}
	addr, err := netip.ParseAddrPort(name)
	switch {
	case t.allow == nil:
		return nil, "", fmt.Errorf("address %s from placeholders: not allowed without allow_dynamic", escape(name))
	case err != nil:
		return nil, "", fmt.Errorf("address %s from placeholders: expected an IP address and a port", escape(name))
	case !t.allow.contains(endpoint(addr)):
		return nil, "", fmt.Errorf("address %s from placeholders: not in allow_dynamic", addr)
	}
	return nil, addr.String(), nil
}

// use returns a group named by placeholders.
func (t *target) use(name string) (*upstream.Runtime, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.named[name]; r != nil {
		return r, nil
	}
	if t.closed {
		return nil, errors.New("the configuration has ended")
	}
	r, err := upstream.Use(t.ctx, name)
	if err != nil {
		return nil, fmt.Errorf("from placeholders: %w", err)
	}
	t.named[name] = r
	upstream.WarnKey(t.ctx, name, "stream", t.exists)
	return r, nil
}
