// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	zapobserver "go.uber.org/zap/zaptest/observer"
)

// told is a check that says what the test tells it to.
type told struct {
	rules CheckRules

	mu      sync.Mutex
	judge   Judge
	servers map[string]*Peer
	started int
	stopped int
}

func (c *told) Rules() CheckRules { return c.rules }

func (c *told) Watch(judge Judge) Watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judge = judge
	c.started++
	return c
}

func (c *told) Update(list []Checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = map[string]*Peer{}
	for _, s := range list {
		c.servers[s.Peer.ID()] = s.Peer
	}
}

func (c *told) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped++
}

func (c *told) fail(id string) { c.say(id, errors.New("status 500")) }
func (c *told) pass(id string) { c.say(id, nil) }

func (c *told) say(id string, reason error) {
	c.mu.Lock()
	p, judge := c.servers[id], c.judge
	c.mu.Unlock()
	judge(p, Verdict{Reason: reason, Since: time.Now()})
}

func (c *told) watched() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id := range c.servers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return fmt.Sprint(strings.Join(ids, ""), c.started, c.stopped)
}

// checkedBy is a configuration of these servers with checks.
func checkedBy(servers string, checks ...*told) *generation {
	g := testGeneration(strings.Split(servers, "")...)
	for _, c := range checks {
		g.digest += fmt.Sprintf("%p", c)
		g.checks = append(g.checks, checkup{key: fmt.Sprintf("%p", c), check: c, rules: c.rules})
	}
	return g
}

// live are the servers that can be picked.
func live(r *Runtime) string {
	var ids []string
	for _, s := range r.group.Snapshot(time.Now()) {
		if s.Available(time.Now()) {
			ids = append(ids, s.Server.ID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, "")
}

func mustPush(t *testing.T, r *Runtime, g *generation) {
	t.Helper()
	if err := r.push(g, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
}

func wantLive(t *testing.T, r *Runtime, when, want string) {
	t.Helper()
	if got := live(r); got != want {
		t.Errorf("%s: %q can be picked, want %q", when, got, want)
	}
}

func TestChecksWorkWhileAConfigurationIsStarted(t *testing.T) {
	r := held(t, "checked")
	c := new(told)
	g := checkedBy("ab", c)
	if err := r.propose(g, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if c.started != 0 {
		t.Error("the check works before the configuration is started")
	}
	mustPush(t, r, g)
	if got := c.watched(); got != "ab1 0" && got != "ab10" {
		t.Errorf("watched %s, want a and b, started once", got)
	}
	c.fail("a")
	wantLive(t, r, "after a has failed", "b")
	c.pass("a")
	wantLive(t, r, "after it has passed", "ab")
	r.drop(g)
	if c.stopped != 1 {
		t.Errorf("stopped %d times, want once", c.stopped)
	}
}

func TestAnEqualCheckGoesOnOverAReload(t *testing.T) {
	r := held(t, "checked")
	c := new(told)
	first, second := checkedBy("ab", c), checkedBy("abd", c)
	mustPush(t, r, first)
	c.fail("a")
	mustPush(t, r, second)
	r.drop(first)
	if c.started != 1 || c.stopped != 0 || !strings.HasPrefix(c.watched(), "abd") {
		t.Errorf("watched %s, want a, b and d, started once, never stopped", c.watched())
	}
	wantLive(t, r, "after the reload", "bd")
	r.drop(second)
}

func TestACheckThatChangesHandsItsVerdictsOver(t *testing.T) {
	r := held(t, "checked")
	before, after := new(told), new(told)
	first, second := checkedBy("ab", before), checkedBy("ab", after)
	mustPush(t, r, first)
	before.fail("a")
	mustPush(t, r, second)
	wantLive(t, r, "before the new check has asked", "b")
	before.pass("a")
	wantLive(t, r, "after a late verdict of the old one", "b")
	after.pass("a")
	wantLive(t, r, "after the new one", "ab")
	r.drop(second) // the reload failed after all
	after.fail("a")
	wantLive(t, r, "back in the first configuration", "ab")
	before.fail("b")
	wantLive(t, r, "after its check", "a")
	r.drop(first)
}

func TestMandatoryChecksWantServersToProveThemselves(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		r := held(t, fmt.Sprint("checked", persistent))
		c := &told{rules: CheckRules{Mandatory: true, Persistent: persistent}}
		first, same, second := checkedBy("ab", c), checkedBy("ab", c), checkedBy("abd", c)
		mustPush(t, r, first)
		wantLive(t, r, "before any check", "")
		c.pass("a")
		c.pass("b")
		wantLive(t, r, "after both have passed", "ab")
		mustPush(t, r, same)
		r.drop(first)
		wantLive(t, r, "after a reload that changes nothing", "ab")
		mustPush(t, r, second)
		r.drop(same)
		want := ""
		if persistent {
			want = "ab"
		}
		wantLive(t, r, fmt.Sprintf("persistent %t: after one that does", persistent), want)
		for _, id := range []string{"a", "b", "d"} {
			c.pass(id)
		}
		wantLive(t, r, "after all have passed", "abd")
		if _, err := r.change("", func(l []line) ([]line, error) { return append(l, testLine("n")), nil }); err != nil {
			t.Fatal(err)
		}
		wantLive(t, r, "with a server that the API added", "abd")
		c.pass("n")
		wantLive(t, r, "after it has passed", "abdn")
		r.drop(second)
	}
}

func TestVerdictsAreLoggedAndShown(t *testing.T) {
	r := held(t, "checked")
	c := &told{rules: CheckRules{Name: "http /up"}}
	core, logs := zapobserver.New(zap.InfoLevel)
	g := checkedBy("ab", c)
	if err := r.push(g, zap.New(core)); err != nil {
		t.Fatal(err)
	}
	c.fail("a")
	c.fail("a")
	state, _ := entry{r, r.key.name}.state(time.Now())
	if s := state.Servers[0].State; s.State != "unhealthy" || len(s.Checks) != 1 || s.Checks[0].Check != "http /up" || s.Checks[0].Reason != "status 500" {
		t.Errorf("state %+v, want unhealthy by http /up: status 500", s)
	}
	c.pass("a")
	if state, _ = (entry{r, r.key.name}).state(time.Now()); state.Servers[0].State.State != "up" {
		t.Errorf("state %+v, want up", state.Servers[0].State)
	}
	var got []string
	for _, e := range logs.All() {
		f := e.ContextMap()
		got = append(got, fmt.Sprint(e.Level, " ", e.Message, " ", f["server"], " ", f["check"], " ", f["reason"]))
	}
	if text := strings.Join(got, ", "); text != "warn server unhealthy a http /up status 500, info server healthy a http /up <nil>" {
		t.Errorf("log: %s", text)
	}
	r.drop(g)
}

func TestServersThatAreDownAreNotChecked(t *testing.T) {
	r := held(t, "checked")
	c := new(told)
	g := checkedBy("ab", c)
	g.lines[0].peers[0].Down = true
	g = g.with(g.lines)
	mustPush(t, r, g)
	if got := c.watched(); !strings.HasPrefix(got, "b1") {
		t.Errorf("watched %s, want b alone", got)
	}
	r.drop(g)
}

func TestAnEqualConfigurationWhoseHandlersChangeTheirTLSIsAskedAnew(t *testing.T) {
	r := held(t, "checked")
	before, after := new(told), new(told)
	first, second := checkedBy("ab", before), checkedBy("ab", before)
	second.checks[0].check, second.checks[0].tls = after, 7
	mustPush(t, r, first)
	before.fail("a")
	mustPush(t, r, second)
	if before.stopped != 1 || after.started != 1 {
		t.Errorf("stopped %d and started %d times, want the check of the new configuration at work", before.stopped, after.started)
	}
	wantLive(t, r, "before it has asked", "b")
	before.pass("a")
	wantLive(t, r, "after a late verdict of the old one", "b")
	after.pass("a")
	wantLive(t, r, "after its own", "ab")
	r.drop(second) // the reload failed after all
	after.fail("b")
	wantLive(t, r, "after a late verdict of what has failed", "ab")
	before.fail("b")
	wantLive(t, r, "in the first configuration again", "a")
	r.drop(first)
}
