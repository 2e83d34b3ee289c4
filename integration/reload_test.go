// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// reloadable is serve for a test that reloads.
func reloadable(t *testing.T, global, site string) *proxy {
	t.Helper()
	p := serve(t, global, site)
	p.reloads = true
	return p
}

// pass is a site that proxies to group app and differs by n.
func pass(n int) string { return fmt.Sprintf("\theader X-Load %d\n\tproxy_pass app", n) }

func TestAReloadKeepsAServerDownAndSinceWhen(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	dead := testnet.RefusedAddr(t)
	p := reloadable(t, group("app", dead+" fail_timeout=60s", b[0].Addr()), pass(0))
	p.get("/")
	before := p.servers("app")[0].State
	for n, lines := range [][]string{
		{dead + " fail_timeout=60s", b[0].Addr()},
		{dead + " fail_timeout=60s", b[0].Addr(), b[1].Addr()},
		{b[1].Addr(), dead + " fail_timeout=60s", b[0].Addr() + " weight=2"},
	} {
		p.MustReload(config(group("app", lines...), pass(n+1)), nil)
		var after server
		for _, s := range p.servers("app") {
			if s.ID == dead {
				after = s
			}
		}
		if after.State.State != "unhealthy" || after.State.DownSince == nil || !after.State.DownSince.Equal(*before.DownSince) ||
			after.State.Fails != before.Fails || after.State.Picks != before.Picks {
			t.Errorf("reload %d: %+v, want what was before: %+v", n+1, after.State, before)
		}
		if got := p.get("/"); got.Status != 200 || got.Get("X-Load") != fmt.Sprint(n+1) {
			t.Errorf("reload %d: %d, load %s", n+1, got.Status, got.Get("X-Load"))
		}
	}
	if n := len(p.logs("server temporarily disabled", "app", 1)); n != 1 {
		t.Errorf("%d warnings, want the one from before", n)
	}
}

func TestAReloadKeepsThePlaceInTheOrder(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	g := group("app", b[0].Addr()+" weight=5", b[1].Addr(), b[2].Addr())
	list := strings.Join([]string{b[0].Addr(), b[1].Addr(), b[2].Addr()}, " ")
	p := reloadable(t, g, "\tproxy_pass /list "+list+"\n"+pass(0))
	var got, static []string
	for n := range 7 {
		got = append(got, p.bodies(1, "/"))
		static = append(static, p.bodies(1, "/list"))
		p.MustReload(config(g, "\tproxy_pass /list "+list+"\n"+pass(n+1)), nil)
	}
	if got := strings.Join(got, " "); got != "a a b a c a a" {
		t.Errorf("one request for each reload: answers %s, want a a b a c a a", got)
	}
	if got := strings.Join(static, " "); got != "a b c a b c a" {
		t.Errorf("a static list: answers %s, want a b c a b c a", got)
	}
}

func TestAFailedReloadLeavesEverythingAsItWas(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	hog := testnet.NewBackend(t, named("hog")) // its port is taken
	dead := testnet.RefusedAddr(t)
	g := group("app", b[0].Addr()+" weight=2", b[1].Addr(), dead+" fail_timeout=60s")
	p := reloadable(t, g, pass(0))
	p.bodies(4, "/")
	before := p.servers("app")
	failing := []string{
		// Does not adapt; does not provision; does not start: the port is taken.
		config(group("app", b[0].Addr()+" weight=0"), pass(1)),
		config(group("app", b[2].Addr()), pass(1)+"\n\treverse_proxy /x {\n\t\tlb_policy upstream none\n\t}"),
		config(group("app", b[2].Addr())+group("new", b[2].Addr()), pass(1)) + "http://" + hog.Addr() + " {\n\trespond no\n}\n",
	}
	for i, text := range failing {
		if err := p.Reload(text, nil); err == nil {
			t.Fatalf("configuration %d was accepted", i)
		}
		after := p.servers("app")
		if fmt.Sprint(states(after)) != fmt.Sprint(states(before)) {
			t.Errorf("after failed reload %d: %v, want %v", i, states(after), states(before))
		}
		if status, _, _ := p.Admin("GET", "/upstream/groups/new", nil); status != 404 {
			t.Errorf("after failed reload %d: the new group answers %d, want 404", i, status)
		}
	}
	if got, want := p.bodies(6, "/"), "a b a a b a"; got != want {
		t.Errorf("answers %s, want the order to go on: %s", got, want)
	}
	if res := p.get("/"); res.Get("X-Load") != "0" {
		t.Errorf("load %s, want 0", res.Get("X-Load"))
	}
	// And the next good one is taken.
	p.MustReload(config(group("app", b[2].Addr()), pass(2)), nil)
	if got := p.bodies(2, "/"); got != "c c" {
		t.Errorf("after a good reload: answers %s, want c c", got)
	}
}

// states is what must not change, server by server.
func states(servers []server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, fmt.Sprint(s.ID, s.Weight, s.State.State, s.State.Picks, s.State.Fails,
			s.State.CurrentWeight, s.State.EffectiveWeight, s.State.DownSince))
	}
	return out
}

func TestGroupsAndServersComeAndGoWithReloads(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	one, two := group("app", b[0].Addr()), group("two", b[1].Addr())
	p := reloadable(t, one, pass(0))
	p.get("/")
	p.MustReload(config(one+two, pass(1)+"\n\tproxy_pass /two two"), nil)
	if got := p.bodies(1, "/two"); got != "b" {
		t.Errorf("added group: answer %s, want b", got)
	}
	p.MustReload(config(one, pass(2)), nil)
	testnet.Eventually(t, 10*time.Second, "the removed group is gone", func() bool {
		status, _, _ := p.Admin("GET", "/upstream/groups/two", nil)
		return status == 404
	})
	p.MustReload(config(one+two, pass(3)+"\n\tproxy_pass /two two"), nil)
	if s := p.servers("two")[0].State; s.Picks != 0 {
		t.Errorf("a group that was gone has %d picks, want a new state", s.Picks)
	}
	if s := p.servers("app")[0].State; s.Picks != 1 {
		t.Errorf("the group that stayed has %d picks, want 1", s.Picks)
	}
	// A server that leaves finishes what it has.
	hold := make(chan struct{})
	b[0].SetAnswer(testnet.Answer{Body: "late", Hold: hold})
	c := p.dial()
	if err := c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	p.waitConns(1)
	reloaded := make(chan error, 1)
	go func() { reloaded <- p.Reload(config(group("app", b[2].Addr()), pass(4)), nil) }()
	testnet.Eventually(t, 10*time.Second, "the new server is in the group", func() bool {
		for _, s := range p.servers("app") {
			if s.ID == b[2].Addr() {
				return true
			}
		}
		return false
	})
	close(hold)
	res, err := c.Receive("GET")
	if err != nil || res.Text() != "late" {
		t.Errorf("the request in flight: %q, %v, want late", res.Text(), err)
	}
	if err := <-reloaded; err != nil {
		t.Error(err)
	}
	testnet.Eventually(t, 10*time.Second, "the removed server is gone", func() bool { return len(p.servers("app")) == 1 })
	if got := p.bodies(1, "/"); got != "c" {
		t.Errorf("answer %s, want c", got)
	}
	p.WaitLog(t, "server removed", map[string]any{"group": "app", "server": b[0].Addr()})
}

func TestAWebSocketOutlivesAReloadWithStreamCloseDelayAndKeepsItsSlot(t *testing.T) {
	t.Parallel()
	b := newWebSocket(t)
	site := func(n int) string {
		return fmt.Sprintf(`
	header X-Load %d
	proxy_pass app {
		stream_close_delay 1m
	}`, n)
	}
	g := group("app", b.Addr()+" max_conns=9")
	p := reloadable(t, g, site(0))
	c := openWebSocket(t, p, "/")
	for n := range 3 {
		p.MustReload(config(g, site(n+1)), nil)
		say(t, c, "still here")
		if n := p.conns(); n != 1 {
			t.Errorf("%d in flight, want 1", n)
		}
	}
	// The server leaves the group, and shows as removed until it has ended.
	p.MustReload(config(group("app", testnet.RefusedAddr(t)), site(4)), nil)
	say(t, c, "even now")
	s := p.servers("app")
	if len(s) != 2 || s[1].State.State != "removed" || s[1].State.Conns != 1 {
		t.Errorf("servers %+v, want the removed one with one in flight", s)
	}
	c.Close()
	p.waitConns(0)
	testnet.Eventually(t, 10*time.Second, "the removed server is gone", func() bool { return len(p.servers("app")) == 1 })
}

func TestAWebSocketEndsWithAReloadAsInCaddy(t *testing.T) {
	t.Parallel()
	b := newWebSocket(t)
	p := reloadable(t, group("app", b.Addr()), pass(0))
	c := openWebSocket(t, p, "/")
	p.MustReload(config(group("app", b.Addr()), pass(1)), nil)
	_ = c.Conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(c.Reader()); err != nil && !testnet.Broken(err) {
		t.Errorf("the WebSocket is still open: %v", err)
	}
	p.waitConns(0)
}
