// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// CASES 16.
func TestAQueueHoldsWhatDoesNotFitAndRefusesTheExcessAtOnce(t *testing.T) {
	t.Parallel()
	slow := testnet.Answer{Body: "a", Delay: 100 * time.Millisecond}
	ten, two := testnet.NewBackend(t, slow), testnet.NewBackend(t, testnet.Answer{Body: "a", Delay: 500 * time.Millisecond})
	p := serve(t, group("ten", ten.Addr()+" max_conns=1", "queue 10")+group("two", two.Addr()+" max_conns=1", "queue 2"),
		"\tproxy_pass /ten ten\n\tproxy_pass /two two")
	if got := together(p, 5, "/ten"); got["a"] != 5 {
		t.Errorf("queue 10, five at once: %v, want 5 of a", got)
	}
	if _, most := ten.InFlight(); most != 1 {
		t.Errorf("%d requests at the backend at once, want 1", most)
	}
	if got := together(p, 5, "/two"); got["a"] != 3 || len(two.Requests()) != 3 {
		t.Errorf("queue 2, five at once: %v, want 3 of a and 2 refused", got)
	}
	lines := p.logs("no live upstreams", "two", 2)
	if reason := fmt.Sprint(lines[0].Fields["reason"]); len(lines) != 2 || !strings.Contains(reason, "queue is full") {
		t.Errorf("%d refusals, %s", len(lines), lines[0].Text)
	}
}

func TestAQueueTimeoutIsA502ThatCountsAgainstNoServer(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	b := testnet.NewBackend(t, testnet.Answer{Body: "a", Hold: hold})
	p := serve(t, group("app", b.Addr()+" max_conns=1", "queue 10 timeout=300ms"), "\tproxy_pass app")
	first := p.dial()
	if err := first.Send("GET /first HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b.WaitRequests(1)
	began := time.Now()
	res := p.get("/second")
	if d := time.Since(began); res.Status != 502 || d < 300*time.Millisecond || d > 5*time.Second {
		t.Errorf("status %d after %s, want 502 after 300ms", res.Status, d)
	}
	if s := p.servers("app")[0].State; s.Fails != 0 || s.Failures != 0 || s.Picks != 1 {
		t.Errorf("the server is %+v, want one pick and no failure", s)
	}
	if l := p.logs("no live upstreams", "app", 1)[0]; !strings.Contains(fmt.Sprint(l.Fields["reason"]), "timed out") {
		t.Errorf("log %s", l.Text)
	}
	if addr, status := p.tries("/second"); addr != "app" || status != "502" {
		t.Errorf("tries %q, %q, want the group's name and 502", addr, status)
	}
	close(hold)
	if res, err := first.Receive("GET"); err != nil || res.Status != 200 {
		t.Errorf("first request: %d, %v", res.Status, err)
	}
}

func TestAClientThatLeavesGivesItsPlaceInTheQueueUp(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	b := testnet.NewBackend(t, testnet.Answer{Body: "a", Hold: hold})
	p := serve(t, group("app", b.Addr()+" max_conns=1", "queue 1"), "\tproxy_pass app")
	clients := make([]*testnet.Client, 3)
	send := func(i int) {
		t.Helper()
		clients[i] = p.dial()
		if err := clients[i].Send(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func(n int) {
		t.Helper()
		testnet.Eventually(t, 10*time.Second, fmt.Sprintf("%d waiting", n), func() bool {
			var g struct{ Queue int }
			p.api("/upstream/groups/app", &g)
			return g.Queue == n
		})
	}
	send(0)
	b.WaitRequests(1)
	send(1)
	waiting(1)
	clients[1].Close()
	waiting(0)
	send(2)
	waiting(1)
	close(hold)
	if res, err := clients[2].Receive("GET"); err != nil || res.Status != 200 {
		t.Errorf("third request: %d, %v", res.Status, err)
	}
	if got := len(b.Requests()); got != 2 {
		t.Errorf("%d requests reached the server, want 2", got)
	}
	if status := p.access("/1").Fields["status"]; status != float64(499) {
		t.Errorf("the client that left: status %v, want 499", status)
	}
	p.waitConns(0)
}

func TestAQueueThatHardlyEverHoldsAnythingIsWarnedOf(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, group("app", b[0].Addr(), "queue 10")+group("fine", b[0].Addr()+" max_conns=1", "queue 10"), "\tproxy_pass app")
	if got := p.logs("queue without max_conns on any server: requests wait only while all servers are out", "", 1); len(got) != 1 || got[0].Fields["group"] != "app" {
		t.Errorf("warnings %v, want one of group app", got)
	}
}

// CASES 16, for stream.
func TestStreamSessionsWaitInTheQueue(t *testing.T) {
	t.Parallel()
	b := testnet.NewLines(t, "")
	p := serveStream(t, group("app", b.Addr()+" max_conns=1", "queue 1 timeout=500ms"), `
		server `+front("front")+` {
			proxy_pass app
		}`)
	first := p.tcp("front")
	first.ask("one")
	second := p.tcp("front")
	second.say("two\n")
	testnet.Eventually(t, 10*time.Second, "one waiting", func() bool {
		var g struct{ Queue int }
		p.api("/upstream/groups/app", &g)
		return g.Queue == 1
	})
	if got := p.tcp("front").rest(); got != "" {
		t.Errorf("who finds the queue full got %q", got)
	}
	first.Close()
	second.line()
	if got := p.tcp("front").rest(); got != "" { // times out
		t.Errorf("who waits in vain got %q", got)
	}
	if s := p.servers("app")[0].State; s.Failures != 0 || s.Picks != 2 {
		t.Errorf("the server is %+v, want two picks and no failure", s)
	}
}

// CASES 24.
func TestMaxUnavailableKeepsAPartOfTheGroup(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr(), b[2].Addr(), "max_unavailable 67"), "\tproxy_pass app")
	for _, s := range b {
		s.Stop()
	}
	p.bodies(5, "/")
	out := 0
	for _, s := range p.servers("app") {
		if s.State.State == "unhealthy" {
			out++
		}
	}
	if out != 2 {
		t.Errorf("%d of 3 are out, want 2", out)
	}
}

// CASES 24.
func TestInPanicFailedServersAreUsedToo(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr()+" fail_timeout=1s", b[1].Addr(), "panic 60"), "\tproxy_pass app")
	b[0].Stop()
	p.bodies(2, "/")
	p.WaitLog(t, "too few servers are up: failed ones are used too", map[string]any{"group": "app", "server": b[0].Addr()})
	b[0].Restart()
	if got := p.bodies(4, "/"); !strings.Contains(got, "a") || !strings.Contains(got, "b") {
		t.Errorf("answers %s, want both servers", got)
	}
	testnet.Eventually(t, 10*time.Second, "the end of panic", func() bool {
		p.bodies(2, "/")
		return len(p.Logs("enough servers are up again")) > 0
	})
}

// CASES 31.
func TestARetryBudgetLeavesOneTry(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("none", dead+" max_fails=0", b[0].Addr(), "retry_budget 20 min=0")+
		group("three", dead+" max_fails=0", b[0].Addr(), "retry_budget 20"),
		"\tproxy_pass /none none\n\tproxy_pass /three three")
	if got, want := p.bodies(4, "/none"), "502 a 502 a"; got != want {
		t.Errorf("without a retry: answers %s, want %s", got, want)
	}
	if got, want := p.bodies(4, "/three"), "a a a a"; got != want {
		t.Errorf("three allowed: answers %s, want %s", got, want)
	}
}

// CASES 10.
func TestARandomStartBeginsAnywhereInTheCycle(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	var groups, site strings.Builder
	for i := range 40 {
		groups.WriteString(group(fmt.Sprint("g", i), b[0].Addr(), b[1].Addr(), "random_start"))
		fmt.Fprintf(&site, "\tproxy_pass /%d g%d\n", i, i)
	}
	p := serve(t, groups.String(), site.String())
	first := map[string]int{}
	for i := range 40 {
		first[p.bodies(1, fmt.Sprint("/", i))]++
	}
	if first["a"]+first["b"] != 40 || first["a"] < 5 || first["b"] < 5 {
		t.Errorf("first answers %v, want both", first)
	}
}

// CASES 18.
func TestAServerThatStartsSlowlyGetsLittleAtFirst(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr()), "\tproxy_pass app")
	status, answer, err := p.Admin("POST", "/upstream/groups/app/servers",
		[]byte(fmt.Sprintf(`{"address":%q,"slow_start":"1m"}`, b[1].Addr())), "Content-Type", "application/json")
	if err != nil || status != 201 {
		t.Fatalf("adding a server: %d %s %v", status, answer, err)
	}
	if got := strings.Count(p.bodies(100, "/"), "b"); got > 25 {
		t.Errorf("the new server got %d of 100, want next to nothing", got)
	}
}

func TestAProbedServerMeetsNoRequestBeforeItCanBeReached(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr()+" fail_timeout=300ms probe=tcp", b[1].Addr()), "\tproxy_pass app")
	b[0].Stop()
	p.bodies(2, "/")
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		p.bodies(1, "/")
	}
	if s := p.servers("app")[0].State; s.Picks != 1 || s.Failures < 2 {
		t.Errorf("dead for six fail_timeouts: %+v, want one pick, and failed probes", s)
	}
	b[0].Restart()
	testnet.Eventually(t, 10*time.Second, "the server answers again", func() bool { return p.get("/").Text() == "a" })
	if s := p.servers("app")[0].State; s.Picks != 2 {
		t.Errorf("%d picks, want 2: no request was lost to the dead server", s.Picks)
	}
	p.WaitLog(t, "server recovered", map[string]any{"group": "app", "server": b[0].Addr()})
}
