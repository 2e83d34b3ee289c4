// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-upstream/caddy-upstream/modules/hash"
	"github.com/caddy-upstream/caddy-upstream/modules/leasttime"
	"github.com/caddy-upstream/caddy-upstream/modules/random"
)

// method sets the balancing method of an upstream block; the last one counts.
func (a *adapter) method(s *scope, d *dir, name string, config any, mayBackup bool) error {
	g := s.values["group"].(*group)
	if g.config.Queue != nil {
		return d.errorf("the method has to stand before queue")
	}
	if g.config.BalancerRaw != nil || g.config.StickyRaw != nil {
		a.warn(d, "load balancing method redefined")
	}
	g.config.StickyRaw = nil // a method after it replaces it
	g.config.BalancerRaw = caddyconfig.JSONModuleObject(config, "method", name, nil)
	delete(s.values, "plain method")
	if !mayBackup { // nor slow_start
		s.values["plain method"] = d.name
	}
	return nil
}

func (a *adapter) leastConn(s *scope, d *dir) error {
	return a.method(s, d, "least_conn", struct{}{}, true)
}

func (a *adapter) ipHash(s *scope, d *dir) error {
	return a.method(s, d, "ip_hash", struct{}{}, false)
}

func (a *adapter) hash(s *scope, d *dir) error {
	if len(d.args) == 2 && d.args[1] != "consistent" {
		return d.errorf("invalid parameter %q: expected consistent", d.args[1])
	}
	m := hash.Method{Key: a.templateIn(s, d, d.args[0]), Consistent: len(d.args) == 2}
	return a.method(s, d, "hash", m, false)
}

func (a *adapter) random(s *scope, d *dir) error {
	m := random.Method{Two: len(d.args) > 0}
	if len(d.args) > 0 && d.args[0] != "two" {
		return d.errorf("invalid parameter %q: expected two", d.args[0])
	}
	if len(d.args) > 1 {
		by, timed := strings.CutPrefix(d.args[1], "least_time=")
		switch {
		case timed && slices.Contains(times(s), by):
			m.LeastTime = by
		case d.args[1] != "least_conn":
			return d.errorf("invalid parameter %q: expected least_conn, or least_time= with %s", d.args[1], strings.Join(times(s), ", "))
		}
	}
	return a.method(s, d, "random", m, false)
}

// times are those that the methods of an upstream block may go by.
func times(s *scope) []string {
	if s.kind == inStreamUpstream {
		return []string{"connect", "first_byte", "last_byte"}
	}
	return []string{"header", "last_byte"}
}

func (a *adapter) leastTime(s *scope, d *dir) error {
	if _, err := oneOf(times(s)...)(a, d); err != nil {
		return err
	}
	m := leasttime.Method{Time: d.args[0]}
	if len(d.args) == 2 {
		if d.args[1] != "inflight" {
			return d.errorf("invalid parameter %q: expected inflight", d.args[1])
		}
		m.Inflight = true
	}
	return a.method(s, d, "least_time", m, true)
}

// templateIn turns a text into one with the placeholders of where s stands.
func (a *adapter) templateIn(s *scope, d *dir, text string) string {
	for ; s != nil; s = s.parent {
		if s.kind == inStream {
			return a.streamTemplate(d, text)
		}
	}
	a.uses(d, text)
	return template(text, nil)
}

func hasPort(s string) bool {
	if strings.HasPrefix(s, "unix:") {
		return true
	}
	i := strings.LastIndexByte(s, ':')
	return i >= 0 && !strings.HasSuffix(s, "]")
}
