// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// checkedServer is the state of a server of group app.
func (p *proxy) checkedServer(id string) upstream.LiveState {
	p.t.Helper()
	return p.serverOf("app", id).State
}

// serverOf is a server of a group, as GET /upstream/groups has it.
func (p *proxy) serverOf(group, id string) upstream.ServerState {
	p.t.Helper()
	var g upstream.GroupState
	p.AdminJSON("/upstream/groups/"+group, &g)
	for _, s := range g.Servers {
		if s.ID == id {
			return s
		}
	}
	p.t.Fatalf("no server %s in %+v", id, g)
	return upstream.ServerState{}
}

// waitState waits until a server is in that state.
func (p *proxy) waitState(id, state string) upstream.LiveState {
	p.t.Helper()
	var s upstream.LiveState
	testnet.Eventually(p.t, 30*time.Second, "server "+id+" "+state, func() bool {
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
	// max_fails=0: nothing but the check takes it out.
	p := serve(t, group("app", a.Addr()+" id=a", b.Addr()+" id=b", far.Addr()+" id=far max_fails=0",
		"health_check interval=1s timeout=5s fails=1 passes=2")+group("others", a.Addr(), b.Addr()),
		"\troute /others {\n\t\tproxy_pass others\n\t}\n\tproxy_pass app {\n\t\tconnect_timeout 500ms\n\t}")
	p.waitState("far", "up")
	host.Drop(true)
	s := p.waitState("far", "unhealthy")
	if len(s.Checks) != 1 || !strings.Contains(s.Checks[0].Reason, "timed out") || s.Checks[0].Check != "http /" {
		t.Errorf("checks %+v, want http / that timed out", s.Checks)
	}
	p.logs("server unhealthy", "app", 1)
	picks := p.checkedServer("far").Picks
	p.asQuickAs("/", "/others", 1000, 50*time.Millisecond)
	if s := p.checkedServer("far"); s.Picks != picks || s.State != "unhealthy" {
		t.Errorf("the server that is off was picked %d times, and is %s", s.Picks-picks, s.State)
	}
	host.Drop(false)
	p.waitState("far", "up")
	p.logs("server healthy", "app", 1)
	browser := testnet.Browser{Addr: p.Addr("front")}
	defer browser.Close()
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

// asQuickAs sends n requests to path, and says that none took longer than the
// slowest of as many to other, plus slack. A request to the one follows one to
// the other, so that what slows the machine slows both; a stall that hits one of
// them only is nobody's fault, and n requests of which none meets one are
// enough, of five rounds.
func (p *proxy) asQuickAs(path, other string, n int, slack time.Duration) {
	p.t.Helper()
	var worst string
	for range 5 {
		slowest, reference := p.race(path, other, n, slack)
		if slowest <= reference+slack {
			p.t.Logf("the slowest of %d requests took %v, the slowest of the others %v", n, slowest, reference)
			return
		}
		worst += fmt.Sprintf(" %v (others %v)", slowest, reference)
	}
	p.t.Errorf("the slowest request of each round took%s, want %v more than the others at most", worst, slack)
}

// race returns the longest times. It gives up when many requests were too slow.
func (p *proxy) race(path, other string, n int, slack time.Duration) (slowest, reference time.Duration) {
	p.t.Helper()
	browsers := map[string]*testnet.Browser{path: {Addr: p.Addr("front")}, other: {Addr: p.Addr("front")}}
	ask := func(target string) time.Duration {
		begun := time.Now()
		res, err := browsers[target].Get(target)
		took := time.Since(begun)
		if err != nil || res.Status != 200 {
			p.t.Fatalf("GET %s: status %d, %v", target, res.Status, err)
		}
		return took
	}
	for _, b := range browsers {
		defer b.Close()
	}
	for target := range browsers { // the connections
		ask(target)
	}
	slow := 0
	for i := 0; i < n && slow < 10; i++ {
		if i%2 == 0 {
			reference = max(reference, ask(other))
		}
		took := ask(path)
		slowest = max(slowest, took)
		if i%2 == 1 {
			reference = max(reference, ask(other))
		}
		if took > reference+slack {
			slow++
		}
	}
	return slowest, reference
}

// illness is how a server of group app, or of another one, is ill.
type illness struct{ group, reason string }

func TestEveryKindOfIllnessHasItsReason(t *testing.T) {
	answers := map[string]testnet.Answer{
		"well":     {Body: "fine"},
		"wrong":    {Body: "broken"},
		"redirect": {Raw: "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"},
		"closes":   {Raw: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfine", Then: testnet.Close},
		"error":    {Status: 503},
	}
	ills := map[string]illness{
		"wrong": {"app", "the body does not match fine"}, "redirect": {"app", `status 302, a redirect to "/login"`},
		"closes": {"app", "reading the body: the server closed the connection"}, "error": {"app", "status 503"},
		"hangs": {"app", "timed out"}, "gone": {"app", "connection refused"}, "expired": {"secure", "certificate has expired"},
	}
	var lines []string
	for name, answer := range answers {
		lines = append(lines, testnet.NewBackendFunc(t, apart(name, answer)).Addr()+" id="+name)
	}
	gone := testnet.NewBackend(t, testnet.Answer{})
	gone.Stop()
	check := "health_check uri=/up interval=6s timeout=5s {\n\t\t\texpect_body fine\n\t\t}"
	lines = append(lines, gone.Addr()+" id=gone", testnet.NewMute(t).Addr()+" id=hangs", check)
	ca := newAuthority(t)
	fresh, _, _ := ca.issue("127.0.0.1")
	old, _, _ := ca.issueUntil("127.0.0.1", time.Now().Add(-time.Hour))
	over := func(cert tls.Certificate) string {
		return testnet.NewBackendOn(t, func() (net.Listener, error) {
			return tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
		}, func(testnet.Request) testnet.Answer { return testnet.Answer{Body: "fine"} }).Addr()
	}
	p := serve(t, group("app", lines...)+group("secure", over(fresh)+" id=fresh", over(old)+" id=expired", check),
		fmt.Sprintf("\tupstream_status /status.json\n\tproxy_pass /secure https://secure {\n\t\ttls_trust_pool file %s\n\t}\n\tproxy_pass app", ca.file))
	for name, ill := range ills {
		p.assertIll(ill.group, name, ill.reason)
	}
	for range 20 {
		if res := p.get("/"); res.Text() != "well" {
			t.Fatalf("status %d from %s, want well", res.Status, res.Text())
		}
		if res := p.get("/secure"); res.Text() != "fine" {
			t.Fatalf("status %d from %s over TLS, want fine", res.Status, res.Text())
		}
	}
	for name, ill := range ills {
		if n := p.serverOf(ill.group, name).State.Picks; n > 0 && ill.group == "app" {
			t.Errorf("%s was picked %d times", name, n)
		}
	}
}

// assertIll waits until a server is out, and compares the reason in every place
// that tells it.
func (p *proxy) assertIll(group, id, reason string) {
	p.t.Helper()
	var s upstream.ServerState
	testnet.Eventually(p.t, 30*time.Second, "server "+id+" unhealthy", func() bool {
		s = p.serverOf(group, id)
		return s.State.State == "unhealthy"
	})
	tells := func(where string, checks []upstream.CheckState) {
		p.t.Helper()
		if len(checks) != 1 || checks[0].Check != "http /up" || !strings.Contains(checks[0].Reason, reason) {
			p.t.Errorf("%s: %s says %+v, want http /up: %q", id, where, checks, reason)
		}
	}
	tells("GET /upstream/groups", s.State.Checks)
	var page struct{ Groups []upstream.GroupState }
	if err := json.Unmarshal(p.get("/status.json").Body, &page); err != nil {
		p.t.Fatal(err)
	}
	for _, g := range page.Groups {
		for _, x := range g.Servers {
			if g.Name == group && x.ID == id {
				tells("the status page", x.State.Checks)
			}
		}
	}
	has := func(fields map[string]any) bool {
		text, _ := fields["reason"].(string)
		return fields["group"] == group && fields["server"] == id && fields["check"] == "http /up" && strings.Contains(text, reason)
	}
	p.WaitLine(p.t, 30*time.Second, "log line of "+id, func(l testnet.Line) bool {
		return l.Msg() == "server unhealthy" && l.Fields["logger"] == "upstream" && has(l.Fields)
	})
	p.WaitLine(p.t, 30*time.Second, "event of "+id, func(l testnet.Line) bool {
		data, _ := l.Fields["data"].(map[string]any)
		return l.Msg() == "event" && l.Fields["name"] == "upstream.server_down" && has(data)
	})
	labels := fmt.Sprintf(`address=%q,group=%q,server=%q`, s.Address, group, id)
	if up := p.metric("server_up", labels); up != "0" {
		p.t.Errorf("%s: metric server_up %q, want 0", id, up)
	}
	if failed := p.metric("server_failed_check", strings.Replace(labels, ",group", `,check="http /up",group`, 1)); failed != "1" {
		p.t.Errorf("%s: metric server_failed_check %q, want 1", id, failed)
	}
}

func TestChecksAreNoRequests(t *testing.T) {
	b := testnet.NewBackendFunc(t, apart("b", testnet.Answer{Body: "ok", Delay: 100 * time.Millisecond}))
	p := serve(t, group("app", "least_conn", b.Addr()+" id=b max_conns=1", "health_check uri=/up interval=100ms timeout=30s")+
		group("other", b.Addr(), "health_check uri=/up interval=100ms timeout=30s"), "proxy_pass app\n\troute /other {\n\t\tproxy_pass other\n\t}")
	checks := 0
	testnet.Eventually(t, 30*time.Second, "ten checks", func() bool {
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
	// Nor are their times those that least_time compares, or their connections kept
	// for requests.
	if s := p.checkedServer("b"); s.HeaderTime != nil || s.ResponseTime != nil || s.Keepalive != nil {
		t.Errorf("after %d checks alone: header_time %v, response_time %v, keepalive %v; want none",
			checks, s.HeaderTime, s.ResponseTime, s.Keepalive)
	}
	if _, most := b.InFlight(); most != 1 {
		t.Errorf("%d checks at once: two groups with equal checks ask the same server twice", most)
	}
	if res := p.get("/"); res.Status != 200 {
		t.Errorf("status %d with max_conns=1 while checks go on, want 200", res.Status)
	}
	if s := p.checkedServer("b"); s.ResponseTime == nil || s.ResponseTime.Count != 1 || s.Keepalive == nil || s.Keepalive.Created != 1 || s.Keepalive.Reused != 0 {
		t.Errorf("after one request response_time %+v, keepalive %+v; want one time and one connection, made for it", s.ResponseTime, s.Keepalive)
	}
}

func TestAPassedCheckEndsATimeOut(t *testing.T) {
	var well atomic.Bool
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if r.Target() == "/fail" && well.CompareAndSwap(false, true) {
			return testnet.Answer{Raw: "x", Then: testnet.Close}
		}
		return testnet.Answer{Body: "b"}
	})
	a := testnet.NewBackend(t, testnet.Answer{Body: "a"})
	p := serve(t, group("app", b.Addr()+" id=b fail_timeout=1h", a.Addr()+" id=a", "health_check uri=/up interval=500ms timeout=30s"), "proxy_pass app")
	p.waitState("b", "up")
	for !well.Load() {
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
		testnet.Eventually(t, 30*time.Second, "a look-up", func() bool { return d.Asked("slow.test") >= n })
	}
	p.MustReload(text(9), nil)
	p.AssertReturnsTo(base, 30*time.Second)
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
			fmt.Sprintf("health_check tcp address=%s:%s interval=200ms timeout=30s on_fail=%s", host, port, mode)),
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
		testnet.Eventually(t, 30*time.Second, "the line at the server", func() bool { return len(echo.Received()) > 0 })
	}
}
