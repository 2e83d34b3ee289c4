// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// checkedServer is the state of a server of group app.
func (p *proxy) checkedServer(id string) upstream.LiveState {
	p.t.Helper()
	var g upstream.GroupState
	p.AdminJSON("/upstream/groups/app", &g)
	for _, s := range g.Servers {
		if s.ID == id {
			return s.State
		}
	}
	p.t.Fatalf("no server %s in %+v", id, g)
	return upstream.LiveState{}
}

// waitState waits until a server is in that state.
func (p *proxy) waitState(id, state string) upstream.LiveState {
	p.t.Helper()
	var s upstream.LiveState
	testnet.Eventually(p.t, 20*time.Second, "server "+id+" "+state, func() bool {
		s = p.checkedServer(id)
		return s.State == state
	})
	return s
}

// apart answers health checks with check, and everything else with name.
func apart(name string, check testnet.Answer) func(testnet.Request) testnet.Answer {
	return func(r testnet.Request) testnet.Answer {
		if strings.HasPrefix(r.Target(), "/up") {
			return check
		}
		return testnet.Answer{Body: name}
	}
}

func TestAServerThatIsPoweredOffGetsNoRequestsUntilItIsBack(t *testing.T) {
	host := testnet.NewHost(t)
	a, b := testnet.NewBackend(t, testnet.Answer{Body: "a"}), testnet.NewBackend(t, testnet.Answer{Body: "b"})
	far := testnet.NewBackendOn(t, func() (net.Listener, error) { return host.Listen("tcp", ":8080") },
		func(testnet.Request) testnet.Answer { return testnet.Answer{Body: "far"} })
	p := serve(t, group("app", a.Addr()+" id=a", b.Addr()+" id=b", far.Addr()+" id=far",
		"health_check interval=1s timeout=500ms fails=1 passes=2"), "proxy_pass app")
	p.waitState("far", "up")
	host.Drop(true)
	s := p.waitState("far", "unhealthy")
	if len(s.Checks) != 1 || !strings.Contains(s.Checks[0].Reason, "timed out") || s.Checks[0].Check != "http /" {
		t.Errorf("checks %+v, want http / that timed out", s.Checks)
	}
	p.logs("server unhealthy", "app", 1)
	far.Forget()
	browser := testnet.Browser{Addr: p.Addr("front")}
	defer browser.Close()
	var times []time.Duration
	for range 1000 {
		begun := time.Now()
		res, err := browser.Get("/")
		times = append(times, time.Since(begun))
		if err != nil || res.Status != 200 || res.Text() == "far" {
			t.Fatalf("status %d %q, %v, want 200 of a or b", res.Status, res.Text(), err)
		}
	}
	for _, d := range times {
		if d > 400*time.Millisecond { // less than the timeout of anything
			t.Errorf("a request took %v", d)
		}
	}
	host.Drop(false)
	p.waitState("far", "up")
	p.logs("server healthy", "app", 1)
	got := map[string]int{}
	for range 30 {
		res, err := browser.Get("/")
		if err != nil {
			t.Fatal(err)
		}
		got[res.Text()]++
	}
	if got["far"] < 9 || got["far"] > 11 {
		t.Errorf("answers %v, want a third of them from the server that is back", got)
	}
}

func TestEveryKindOfIllnessHasItsReason(t *testing.T) {
	answers := map[string]testnet.Answer{
		"well":     {Body: "fine"},
		"wrong":    {Body: "broken"},
		"redirect": {Raw: "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"},
		"closes":   {Raw: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfine", Then: testnet.Close},
		"error":    {Status: 503},
	}
	reasons := map[string]string{
		"wrong": "the body does not match fine", "redirect": `status 302, a redirect to "/login"`,
		"closes": "reading the body: the server closed the connection", "error": "status 503",
		"hangs": "timed out", "gone": "connection refused",
	}
	var lines []string
	for name, answer := range answers {
		lines = append(lines, testnet.NewBackendFunc(t, apart(name, answer)).Addr()+" id="+name)
	}
	gone := testnet.NewBackend(t, testnet.Answer{})
	gone.Stop()
	lines = append(lines, gone.Addr()+" id=gone", testnet.NewMute(t).Addr()+" id=hangs",
		"health_check uri=/up interval=200ms timeout=150ms {\n\t\t\texpect_body fine\n\t\t}")
	p := serve(t, group("app", lines...), "proxy_pass app")
	for name, reason := range reasons {
		s := p.waitState(name, "unhealthy")
		if len(s.Checks) != 1 || !strings.Contains(s.Checks[0].Reason, reason) {
			t.Errorf("%s: checks %+v, want %q", name, s.Checks, reason)
		}
	}
	for range 20 {
		if res := p.get("/"); res.Text() != "well" {
			t.Fatalf("status %d from %s, want well", res.Status, res.Text())
		}
	}
}

func TestChecksAreNoRequests(t *testing.T) {
	b := testnet.NewBackendFunc(t, apart("b", testnet.Answer{Body: "ok", Delay: 100 * time.Millisecond}))
	p := serve(t, group("app", "least_conn", b.Addr()+" id=b max_conns=1", "health_check uri=/up interval=100ms timeout=1s")+
		group("other", b.Addr(), "health_check uri=/up interval=100ms timeout=1s"), "proxy_pass app\n\troute /other {\n\t\tproxy_pass other\n\t}")
	checks := 0
	testnet.Eventually(t, 20*time.Second, "ten checks", func() bool {
		if s := p.checkedServer("b"); s.Conns != 0 || s.Picks != 0 || s.State != "up" {
			t.Fatalf("state %+v while it is only checked", s)
		}
		checks = 0
		for _, r := range b.Requests() {
			if agent := r.Get("User-Agent"); agent != "caddy-upstream (health check)" {
				t.Fatalf("User-Agent %q", agent)
			}
			checks++
		}
		return checks >= 10
	})
	if _, most := b.InFlight(); most != 1 {
		t.Errorf("%d checks at once: two groups with equal checks ask the same server twice", most)
	}
	if res := p.get("/"); res.Status != 200 {
		t.Errorf("status %d with max_conns=1 while checks go on, want 200", res.Status)
	}
}

func TestAPassedCheckEndsATimeOut(t *testing.T) {
	sick := true
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if r.Target() == "/fail" && sick {
			sick = false
			return testnet.Answer{Raw: "x", Then: testnet.Close}
		}
		return testnet.Answer{Body: "b"}
	})
	a := testnet.NewBackend(t, testnet.Answer{Body: "a"})
	p := serve(t, group("app", b.Addr()+" id=b fail_timeout=1h", a.Addr()+" id=a", "health_check uri=/up interval=500ms"), "proxy_pass app")
	p.waitState("b", "up")
	for sick {
		p.get("/fail")
	}
	p.logs("server temporarily disabled", "app", 1)
	p.waitState("b", "up")
	p.logs("server recovered", "app", 1)
}

func TestAReloadInTheMiddleOfChecksAndLookupsLeavesNothing(t *testing.T) {
	d := testnet.NewDNS(t)
	a := testnet.NewBackend(t, testnet.Answer{Body: "a"})
	mute := testnet.NewMute(t)
	text := func(n int, more ...string) string {
		return config(group("app", append([]string{a.Addr() + " id=a"}, more...)...), fmt.Sprintf("header X-Load %d\n\tproxy_pass app", n))
	}
	p := start(t, text(0))
	p.get("/")
	base := p.Usage()
	d.Hold(true)
	for n := 1; n <= 5; n++ {
		p.MustReload(text(n, mute.Addr()+" id=mute", "server slow.test:80 resolve",
			fmt.Sprintf("resolver %s timeout=%ds", d.Addr(), 30+n), fmt.Sprintf("health_check interval=%d0s timeout=30s", n),
			fmt.Sprintf("health_check grpc interval=%d0s timeout=30s", n)), nil)
		testnet.Eventually(t, 10*time.Second, "a look-up", func() bool { return d.Asked("slow.test") >= n })
	}
	p.MustReload(text(9), nil)
	p.AssertReturnsTo(base, 10*time.Second)
}

func TestOnFailClosesTheSessionsOfAServerThatFails(t *testing.T) {
	for _, mode := range []string{"keep", "close"} {
		echo := testnet.NewLines(t, "hello\n")
		other := testnet.NewBackend(t, testnet.Answer{})
		host, port, err := net.SplitHostPort(other.Addr())
		if err != nil {
			t.Fatal(err)
		}
		p := serveStream(t, group("app", echo.Addr()+" id=e",
			fmt.Sprintf("health_check tcp address=%s:%s interval=200ms on_fail=%s", host, port, mode)),
			"server "+front("s")+" {\n\t\t\tproxy_pass app\n\t\t}")
		p.waitState("e", "up")
		s := open(t, "tcp", p.Addr("s"))
		if line, err := s.r.ReadString('\n'); err != nil || strings.TrimSpace(line) != "hello" {
			t.Fatalf("%q, %v", line, err)
		}
		other.Stop()
		p.waitState("e", "unhealthy")
		if mode == "close" {
			if _, err := s.r.ReadString('\n'); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("close: the session goes on: %v", err)
			}
			continue
		}
		if _, err := fmt.Fprint(s, "still here\n"); err != nil {
			t.Error(err)
		}
		testnet.Eventually(t, 10*time.Second, "the line at the server", func() bool { return len(echo.Received()) > 0 })
	}
}
