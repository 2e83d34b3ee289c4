// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"strings"

	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/geo"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/nginxmap"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/splitclients"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// The blocks map, geo and split_clients, which http and stream share, without
// what they look up. values are the texts that they may give.
type (
	mapBlock struct {
		nginxhttp.Map
		values []string
	}
	geoBlock struct {
		nginxhttp.Geo
		values []string
	}
	splitBlock struct {
		nginxhttp.Split
		values []string
	}
)

// readMap reads a map; value makes what is kept of a line's value.
func (a *adapter) readMap(d *dir, value func(l *dir, text string) string) (*mapBlock, error) {
	lines, err := a.body(d)
	if err != nil {
		return nil, err
	}
	m := &mapBlock{}
	for _, l := range lines {
		switch {
		case len(l.args) == 0 && l.name == "hostnames":
			m.Hostnames = true
			continue
		case len(l.args) == 0 && l.name == "volatile":
			m.Volatile = true
			continue
		case len(l.args) != 1:
			return nil, l.errorf("expected a pattern and a value")
		}
		if expr, ok := strings.CutPrefix(l.name, "~"); ok {
			if err := a.regex(l, strings.TrimPrefix(expr, "*")); err != nil {
				return nil, err
			}
		}
		m.values = append(m.values, l.args[0])
		m.Entries = append(m.Entries, nginxmap.Entry{Pattern: l.name, Value: value(l, l.args[0])})
	}
	return m, nil
}

func (a *adapter) readGeo(d *dir) (*geoBlock, error) {
	lines, err := a.body(d)
	if err != nil {
		return nil, err
	}
	g := &geoBlock{}
	for _, l := range lines {
		switch {
		case len(l.args) == 0 && l.name == "ranges":
			g.Ranges = true
		case l.name == "proxy" || l.name == "proxy_recursive":
			return nil, l.errorf("it is not translated: use set_real_ip_from and real_ip_header")
		case len(l.args) != 1:
			return nil, l.errorf("expected a network and a value")
		case l.name == "delete":
			g.Entries = append(g.Entries, geo.Entry{Network: l.args[0], Delete: true})
		default:
			g.values = append(g.values, l.args[0])
			g.Entries = append(g.Entries, geo.Entry{Network: l.name, Value: l.args[0]})
		}
	}
	return g, nil
}

func (a *adapter) readSplit(d *dir) (*splitBlock, error) {
	lines, err := a.body(d)
	if err != nil {
		return nil, err
	}
	s := &splitBlock{}
	for _, l := range lines {
		if len(l.args) != 1 {
			return nil, l.errorf("expected a percentage and a value")
		}
		s.values = append(s.values, l.args[0])
		s.Parts = append(s.Parts, splitclients.Part{Share: l.name, Value: l.args[0]})
	}
	return s, nil
}
