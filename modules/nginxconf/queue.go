// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// queue lets requests wait while no server can take them.
func (a *adapter) queue(s *scope, d *dir) error {
	g := s.values["group"].(*group)
	if g.config.Queue != nil {
		return d.errorf("it is duplicate: it may stand once in a block")
	}
	q := &upstream.Queue{}
	if err := number(d.args[0], 1, func(n int) { q.Size = n }); err != nil {
		return d.errorf("invalid number %q", d.args[0])
	}
	if len(d.args) == 2 {
		v, ok := strings.CutPrefix(d.args[1], "timeout=")
		t, err := parseTime(v)
		if !ok || err != nil || t == 0 {
			return d.errorf("invalid parameter %q: expected timeout= and a time", d.args[1])
		}
		q.Timeout = caddy.Duration(t)
	}
	g.config.Queue = q
	return nil
}

// state takes the servers from the file that nginx keeps them in. Here what is
// changed at run time goes to Caddy's storage.
func (a *adapter) state(s *scope, d *dir) error {
	g := s.values["group"].(*group)
	if len(g.config.Servers) > 0 {
		return d.errorf("the servers of an upstream block are in it or in the file of state, not in both")
	}
	name := a.path(d.args[0])
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.errorf("%s is not there: write the servers into the upstream block", d.args[0])
	case err != nil:
		return d.errorf("%v", err)
	}
	servers, err := parseLines(string(text), name)
	if err != nil {
		return err
	}
	for _, l := range servers {
		if l.name != "server" {
			return l.errorf("a state file holds server lines only")
		}
	}
	a.walk(s, servers)
	g.config.State = true
	a.warn(d, "changes at run time are kept in Caddy's storage, not in this file")
	return nil
}
