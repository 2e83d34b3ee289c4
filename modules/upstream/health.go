// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// HealthCheck asks the servers of a group whether they are well. It is a Caddy
// module in the namespace upstream.health_checks.
type HealthCheck interface {
	// Rules says what its verdicts do.
	Rules() CheckRules

	// Watch begins to check, whatever Update then says, and reports to judge. It
	// is called when a configuration of the group is started, not before.
	Watch(judge Judge) Watcher
}

// CheckRules are what a group must know of a check.
type CheckRules struct {
	// Name says what is checked, in the log and in the API.
	Name string
	// Mandatory keeps a new or returning server out until its first pass.
	// Persistent lets servers that stay keep their verdicts when the
	// configuration of the group changes; without it, and with Mandatory, they
	// must prove themselves again.
	Mandatory, Persistent bool
	// CloseSessions ends the open stream sessions of a server that fails.
	CloseSessions bool
}

// Watcher is a check at work. Its methods are called one at a time; they must
// not wait.
type Watcher interface {
	// Update says which servers there are from now on.
	Update(servers []Checked)
	// Stop ends the check. A verdict that comes later is not used.
	Stop()
}

// Checked is a server that is checked: one address of a server that is not down.
type Checked struct {
	Peer *Peer
	// Address is what is dialled, Line the text of the configuration, or the name
	// of the SRV record, that it comes from.
	Address, Line string
}

// Judge takes the verdict on a server. It may be called from any goroutine, and
// again with the same verdict.
type Judge func(p *Peer, v Verdict)

// Verdict is what a check found.
type Verdict struct {
	// Reason is what is wrong, in words; nil: the server is well.
	Reason error
	// Since is when the check began that led to the verdict, the first of those
	// in a row that it takes. A time out of the passive tracker that began before
	// a pass is over.
	Since time.Time
}

// checkup is a check of a group's configuration.
type checkup struct {
	key   string
	check HealthCheck
	rules CheckRules
	// tls names how it talks to the servers: what its handlers do and its files
	// hold, which the configuration of the group, and so the key, does not say.
	tls uint64
}

// checking is a check of the group in force: what the engine knows it by, and,
// while a configuration is started, what asks the servers.
type checking struct {
	checkup
	token   *peer.Check
	watcher Watcher
	stopped *atomic.Bool // the watcher
}

// stop ends the watcher, if there is one.
func (c *checking) stop() {
	if c.watcher != nil {
		c.stopped.Store(true)
		c.watcher.Stop()
		c.watcher = nil
	}
}

// watch begins one.
func (c *checking) watch() {
	stopped := new(atomic.Bool)
	c.stopped = stopped
	c.watcher = c.check.Watch(func(p *Peer, v Verdict) {
		if !stopped.Load() {
			c.judge(p, v)
		}
	})
}

// loadChecks loads the active checks.
func (g *Group) loadChecks(ctx caddy.Context) error {
	if len(g.HealthChecksRaw) == 0 {
		return nil
	}
	raws := slices.Clone(g.HealthChecksRaw) // gone once they are loaded
	mods, err := ctx.LoadModule(g, "HealthChecksRaw")
	if err != nil {
		for _, raw := range raws {
			err = missing("health_checks", "check", "upstream.health_checks", raw, err)
		}
		return err
	}
	used := map[string]int{}
	for i, mod := range mods.([]any) {
		check, ok := mod.(HealthCheck)
		if !ok {
			return fmt.Errorf("health_checks: %T is not a health check", mod)
		}
		key := rawKey(raws[i])
		if used[key]++; used[key] > 1 {
			return fmt.Errorf("health_checks: check %d is the same as an earlier one", i)
		}
		g.checks = append(g.checks, checkup{key: key, check: check, rules: check.Rules()})
	}
	return nil
}

// recheckLocked makes the checks of g those of the group. A check that is there
// already goes on, unless anew says that the configuration has changed and the
// check wants its servers to prove themselves then. One whose successor differs
// hands over its verdicts.
func (r *Runtime) recheckLocked(g *generation, anew bool) {
	now := time.Now()
	old := map[string]*checking{}
	for _, c := range r.checks {
		old[c.key] = c
	}
	proves := func(c checkup) bool { return anew && c.rules.Mandatory && !c.rules.Persistent }
	next := make([]*checking, len(g.checks))
	for i, c := range g.checks {
		if was := old[c.key]; was != nil && !proves(c) {
			next[i] = was
			delete(old, c.key)
		}
	}
	var left []*checking // in their order
	for _, c := range r.checks {
		if old[c.key] == c {
			left = append(left, c)
			c.stop()
		}
	}
	for i, c := range g.checks {
		if next[i] != nil {
			continue
		}
		var before *peer.Check
		if len(left) > 0 {
			before, left = left[0].token, left[1:]
		}
		next[i] = &checking{checkup: c, token: r.group.AddCheck(peer.CheckOptions{
			Name: c.rules.Name, Mandatory: c.rules.Mandatory, Closes: c.rules.CloseSessions,
			Prove: before == nil || proves(c), Before: before,
		}, now)}
	}
	for _, c := range left {
		c.token.End(now)
	}
	r.checks = next
}

// watchLocked lets the checks work while a configuration is started, on the
// servers that there are.
func (r *Runtime) watchLocked() {
	var servers []Checked
	if len(r.checks) > 0 {
		for _, p := range r.group.Peers() {
			if s := p.Server(); !s.Down {
				servers = append(servers, Checked{p, s.Address, s.Line})
			}
		}
	}
	for _, c := range r.checks {
		if len(r.stack) == 0 {
			c.stop()
			continue
		}
		c.renew(r.inForce)
		if c.watcher == nil {
			c.watch()
		}
		c.watcher.Update(servers)
	}
}

func (c *checking) judge(p *Peer, v Verdict) {
	now := time.Now()
	if v.Reason != nil {
		c.token.Fail(p, v.Reason, now)
		return
	}
	c.token.Pass(p, v.Since, now)
}

// CheckState is an active check that has a server out, as the API shows it.
type CheckState struct {
	Check  string    `json:"check"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

func checkStates(list []peer.CheckState) (out []CheckState) {
	for _, c := range list {
		out = append(out, CheckState{c.Check, c.Reason, c.Since})
	}
	return out
}

// rawKey is raw without the differences that mean nothing.
func rawKey(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return strconv.Quote(string(raw))
	}
	out, _ := json.Marshal(v)
	return string(out)
}
