// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// staticName is the name of the group that a list of addresses makes.
func staticName(first string) string {
	return regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(first, "-")
}

func TestSmoothRoundRobinOverCaddysTransportBalancesRetriesAndRecovers(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, "", fmt.Sprintf(`
	reverse_proxy %s %s %s {
		lb_policy smooth_round_robin {
			server %[1]s weight=5 fail_timeout=1s
		}
		lb_retries 2
	}`, b[0].Addr(), b[1].Addr(), b[2].Addr()))
	if got, want := p.bodies(14, "/"), "a a b a c a a a a b a c a a"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
	name := staticName(b[0].Addr())
	servers := p.servers(name)
	if s := servers[0]; s.Weight != 5 || s.State.Picks != 10 {
		t.Errorf("first server: %+v, want weight 5 and 10 picks", s)
	}

	b[0].Stop()
	if got := p.bodies(7, "/"); strings.ContainsAny(got, "a5") {
		t.Errorf("first server refuses: answers %s, want b and c only", got)
	}
	if addr, status := p.tries("/"); addr == "" || status == "" {
		t.Errorf("tries %q, %q, want them recorded", addr, status)
	}
	if s := p.servers(name)[0].State; s.State != "unhealthy" || s.Picks != 11 || s.Failures != 1 {
		t.Errorf("first server: %+v, want unhealthy after one more pick", s)
	}
	b[0].Restart()
	testnet.Eventually(t, 10*time.Second, "the first server answers again", func() bool { return p.get("/").Text() == "a" })
	p.WaitLog(t, "server recovered", map[string]any{"server": b[0].Addr()})
	p.waitConns(0)
}

func TestOverCaddysTransportTheBytesOfBodiesAreCounted(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("answer"))
	ws := newWebSocket(t)
	p := serve(t, group("ws", ws.Addr()), fmt.Sprintf(`
	reverse_proxy /ws {
		lb_policy upstream ws
	}
	reverse_proxy %s {
		lb_policy smooth_round_robin
	}`, b.Addr()))
	if res := p.post("/post", []byte("content")); res.Status != 200 {
		t.Fatalf("status %d, want 200", res.Status)
	}
	fields := p.access("/post").Fields
	if sent, received := fields["upstream_bytes_sent"], fields["upstream_bytes_received"]; sent != "7" || received != "6" {
		t.Errorf("%v bytes sent and %v received, want 7 and 6", sent, received)
	}

	c := openWebSocket(t, p, "/ws")
	say(t, c, "text")
	c.Close()
	want := fmt.Sprint(len(frame("text", true)))
	if sent := p.access("/ws").Fields["upstream_bytes_sent"]; sent != want {
		t.Errorf("%v bytes sent over the WebSocket, want %s", sent, want)
	}
}

// lb_try_duration is for servers that come back, a single one not least.
func TestCaddysTryDurationAsksServersAgain(t *testing.T) {
	t.Parallel()
	b := backends(t, 5)
	p := serve(t, group("single", b[0].Addr())+
		group("counting", b[1].Addr()+" fail_timeout=1s", b[2].Addr()+" fail_timeout=1s")+
		group("careless", b[3].Addr()+" max_fails=0", b[4].Addr()+" max_fails=0 backup"), `
	reverse_proxy /single {
		lb_policy upstream single
		lb_try_duration 1m
	}
	reverse_proxy /counting {
		lb_policy upstream counting
		lb_try_duration 1m
	}
	reverse_proxy /careless {
		lb_policy upstream careless
		lb_try_duration 1m
	}`)
	for i, name := range []string{"single", "counting", "careless"} {
		back := b[max(0, 2*i-1) : 2*i+1]
		for _, s := range back {
			s.Stop()
		}
		status := make(chan int, 1)
		go func() {
			c, err := testnet.Dial(p.Addr("front"))
			if err != nil {
				status <- 0
				return
			}
			defer c.Close()
			c.Timeout = time.Minute
			res, _ := c.Do("GET", "/"+name, nil, nil)
			status <- res.Status
		}()
		testnet.Eventually(t, 30*time.Second, name+": every server has been asked twice", func() bool {
			for _, s := range p.servers(name) {
				if s.State.Picks < 2 {
					return false
				}
			}
			return true
		})
		back[len(back)-1].Restart()
		if got := <-status; got != 200 {
			t.Errorf("%s: status %d, want 200 from the server that is back", name, got)
		}
		// Caddy asks four times a second; what it is told is new after a try only.
		picks := 0
		for _, s := range p.servers(name) {
			picks += int(s.State.Picks)
		}
		if n := len(p.logs("no live upstreams", name, 0)); n > picks {
			t.Errorf("%s: %d lines of no live upstreams beside %d tries", name, n, picks)
		}
		if addr, _ := p.tries("/" + name); strings.Count(addr, name) > picks {
			t.Errorf("%s: tries %s, of which %d asked a server", name, addr, picks)
		}
	}
	p.waitConns(0)
}

func TestSmoothRoundRobinOverNextUpstreamNeedsNoRetrySetting(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	dead := testnet.RefusedAddr(t)
	p := serve(t, "", fmt.Sprintf(`
	reverse_proxy /long/* %s %s %s {
		lb_policy smooth_round_robin
		transport next_upstream {
			conditions error timeout http_503
			transport upstream_keepalive {
				keepalive 8
			}
		}
	}
	proxy_pass /short/* %[2]s %[3]s`, dead, b[0].Addr(), b[1].Addr()))
	if got, want := p.bodies(6, "/long/"), "a b a b a b"; got != want {
		t.Errorf("long form: answers %s, want %s", got, want)
	}
	if got, want := p.bodies(4, "/short/"), "a b a b"; got != want {
		t.Errorf("proxy_pass with addresses: answers %s, want %s", got, want)
	}
	b[0].SetAnswer(testnet.StatusAnswer(503))
	if got, want := p.bodies(2, "/long/"), "b b"; got != want {
		t.Errorf("a answers 503: answers %s, want %s", got, want)
	}
	if n := len(p.logs("server temporarily disabled", "", 2)); n != 2 {
		t.Errorf("%d warnings, want 2: refused, and 503", n)
	}
	p.waitConns(0)
}

func TestEqualListsShareTheirStateAndOtherListsDoNot(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, "", fmt.Sprintf(`
	proxy_pass /one %s %s
	proxy_pass /two %[1]s %[2]s
	proxy_pass /other %[2]s %[1]s`, b[0].Addr(), b[1].Addr()))
	got := p.bodies(1, "/one") + p.bodies(1, "/two") + p.bodies(1, "/one") + p.bodies(1, "/other")
	if got != "abab" {
		t.Errorf("answers %s, want abab", got)
	}
}

func TestWeightedLeastConnOverAListPrefersTheIdleServer(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	hold := make(chan struct{})
	defer close(hold)
	b[0].SetAnswer(testnet.Answer{Body: "a", Hold: hold})
	p := serve(t, "", fmt.Sprintf(`
	reverse_proxy %s %s {
		lb_policy weighted_least_conn
	}`, b[0].Addr(), b[1].Addr()))
	c := p.dial()
	if err := c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	p.waitConns(1)
	if got, want := p.bodies(5, "/"), repeat("b", 5); got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
}

// Over both transports.
func TestCaddysActiveHealthChecksOfAStaticListAreHonoured(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	var sick atomic.Bool
	b[0].Script(func(r testnet.Request) testnet.Answer {
		if r.Target() == "/health" && sick.Load() {
			return testnet.StatusAnswer(503)
		}
		return named("a")
	})
	site := ""
	for path, transport := range map[string]string{"/plain": "", "/next": "transport next_upstream"} {
		site += fmt.Sprintf(`
	reverse_proxy %s %s %s {
		lb_policy smooth_round_robin
		health_uri /health
		health_interval 100ms
		health_status 200
		%s
	}`, path, b[0].Addr(), b[1].Addr(), transport)
	}
	p := serve(t, "", site)
	for _, target := range []string{"/plain", "/next"} {
		sick.Store(false)
		testnet.Eventually(t, 10*time.Second, "both are asked", func() bool {
			got := p.bodies(2, target)
			return got == "a b" || got == "b a"
		})
		sick.Store(true)
		testnet.Eventually(t, 10*time.Second, "the sick one is not", func() bool { return p.bodies(2, target) == "b b" })
		if got, want := p.bodies(6, target), repeat("b", 6); got != want {
			t.Errorf("%s: answers %s, want %s", target, got, want)
		}
	}
	if n := len(p.logs("server temporarily disabled", "", 0)); n != 0 {
		t.Errorf("%d warnings, want none: active checks are no failures of requests", n)
	}
	p.waitConns(0)
}

func TestDynamicUpstreamGivesAGroupsLiveMembersToCaddysPolicies(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr(), dead, b[2].Addr()+" down"), `
	proxy_pass /ours app
	reverse_proxy /theirs {
		dynamic upstream app
		lb_policy round_robin
	}`)
	p.bodies(3, "/ours") // finds the dead one
	got := map[string]int{}
	for range 10 {
		got[p.bodies(1, "/theirs")]++
	}
	if got["a"] != 5 || got["b"] != 5 {
		t.Errorf("answers %v, want five of a and of b: the others are down", got)
	}
}

// A list of addresses has no name: it is known again by all that it says.
func TestAListKeepsItsStateOverAReloadThatLeavesItAsItIs(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dead := testnet.RefusedAddr(t)
	// Two lists of the same addresses, with other options.
	site := func(load, weight int) string {
		text := fmt.Sprintf("\theader X-Load %d\n", load)
		for path, weight := range map[string]int{"one": weight, "two": 7} {
			text += fmt.Sprintf(`
	reverse_proxy /%s %s %s {
		lb_policy smooth_round_robin {
			server %[2]s fail_timeout=1h
			server %[3]s weight=%[4]d
		}
		lb_retries 1
	}
`, path, dead, b[0].Addr(), weight)
		}
		return text
	}
	p := reloadable(t, "", site(0, 3))
	// tried reports whether a request is sent to the dead server first.
	tried := func(target string) bool {
		p.get(target)
		addr, _ := p.tries(target)
		return strings.Contains(addr, dead)
	}
	for i, c := range []struct {
		what     string
		weight   int  // of the living server in the first list; 0: no reload
		one, two bool // a cycle of requests meets the dead server
	}{
		{"at first, each for itself", 0, true, true},
		{"then it is out", 0, false, false},
		{"a reload that changes neither", 3, false, false},
		{"a reload that changes the first list", 4, true, false},
		{"then it is out again", 0, false, false},
	} {
		if c.weight > 0 {
			p.MustReload(config("", site(i, c.weight)), nil)
		}
		for path, want := range map[string]bool{"one": c.one, "two": c.two} {
			met := false
			for n := range 8 { // a whole cycle of either list
				met = tried(fmt.Sprintf("/%s?%d-%d", path, i, n)) || met
			}
			if met != want {
				t.Errorf("%s: requests for /%s meet the dead server: %t, want %t", c.what, path, met, want)
			}
		}
	}
	p.waitConns(0)
}
