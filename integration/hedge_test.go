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

// hedged starts a proxy over TLS backends with connect_hedge and more options.
func hedged(t *testing.T, b []*testnet.Backend, groupLines, options string) *proxy {
	t.Helper()
	lines := []string{}
	for _, x := range b {
		lines = append(lines, x.Addr())
	}
	if groupLines != "" {
		lines = append(lines, groupLines)
	}
	return serve(t, group("app", lines...), `
	proxy_pass https://app {
		tls_insecure_skip_verify
		connect_hedge 50ms
		header_up X-Server {http.reverse_proxy.upstream.hostport}
		`+options+`
	}`)
}

// later sends a request and returns where its answer comes.
func (p *proxy) later(method, target, body string) (*testnet.Client, chan testnet.Response) {
	p.t.Helper()
	c := p.dial()
	head := ""
	if body != "" {
		head = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	if err := c.Send(method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + head + "\r\n" + body); err != nil {
		p.t.Fatal(err)
	}
	answer := make(chan testnet.Response, 1)
	go func() {
		if res, err := c.Receive(method); err == nil {
			answer <- res
		}
		close(answer)
	}()
	return c, answer
}

// answered waits for an answer that came from one of the backends, over its
// own header.
func answered(t *testing.T, answer chan testnet.Response, b *testnet.Backend, name string) {
	t.Helper()
	select {
	case res := <-answer:
		if res.Status != 200 || res.Text() != name {
			t.Fatalf("answer %d %q, want %s", res.Status, res.Text(), name)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no answer")
	}
	requests := b.Requests()
	last := requests[len(requests)-1]
	if got := last.Get("X-Server"); got != b.Addr() {
		t.Errorf("X-Server = %q, want that of %s, %q", got, name, b.Addr())
	}
	if got := last.Get("Host"); got != b.Addr() {
		t.Errorf("Host = %q, want that of %s, %q", got, name, b.Addr())
	}
}

func TestTheFasterServerGetsTheRequestAndTheSlowOneIsLeftAlone(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	gates[1].open()
	p := hedged(t, b, "sticky route {query.none}", "")
	_, answer := p.later("GET", "/first", "")
	answered(t, answer, b[1], "b")
	if addr, status := p.tries("/first"); addr != addrs(b[0], b[1]) || status != "-, 200" {
		t.Errorf("tries %q, %q, want %q, %q", addr, status, addrs(b[0], b[1]), "-, 200")
	}
	// While its connection is being made a is not picked.
	if got, want := p.bodies(20, "/"), repeat("b", 20); got != want {
		t.Errorf("answers %s, want b only", got)
	}
	if s := p.servers("app")[0].State; s.Picks != 1 || s.Conns != 1 {
		t.Errorf("a: %+v, want one pick, still open", s)
	}
	// A connection that is there after all is kept, and used.
	gates[0].open()
	p.waitConns(0)
	if got := p.bodies(4, "/"); strings.Count(got, "a") != 2 {
		t.Errorf("answers %s, want both servers", got)
	}
	if n := accepted(b[0]); n != 1 {
		t.Errorf("%d connections to a, want the one that was made in the background", n)
	}
	if n := accepted(b[1]); n != 1 {
		t.Errorf("%d connections to b, want the one that won to be used on", n)
	}
	for _, s := range p.servers("app") {
		if s.State.Failures != 0 {
			t.Errorf("%s: %d failures, want none", s.Address, s.State.Failures)
		}
	}
}

func TestTheSlowServerGetsTheRequestIfItIsThereFirstAfterAll(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	p := hedged(t, b, "", "")
	_, answer := p.later("POST", "/first", "content")
	waitConnecting(t, b...)
	gates[0].open()
	answered(t, answer, b[0], "a")
	if got := string(b[0].Requests()[0].Body); got != "content" {
		t.Errorf("the body is %q, want %q", got, "content")
	}
	if addr, status := p.tries("/first"); addr != addrs(b[1], b[0]) || status != "-, 200" {
		t.Errorf("tries %q, %q, want the one that answered last", addr, status)
	}
	if accepted(b[0]) != 1 || len(b[1].Requests()) != 0 {
		t.Error("a was connected again, or b got the request as well")
	}
	gates[1].open()
	p.waitConns(0)
	p.bodies(4, "/")
	if accepted(b[0]) != 1 || accepted(b[1]) != 1 {
		t.Errorf("%d and %d connections, want one each", accepted(b[0]), accepted(b[1]))
	}
}

func TestAfterEachDelayOneMoreServerIsConnected(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 4)
	gates[3].open()
	p := hedged(t, b, "", "")
	_, answer := p.later("GET", "/first", "")
	answered(t, answer, b[3], "d")
	if addr, status := p.tries("/first"); addr != addrs(b...) || status != "-, -, -, 200" {
		t.Errorf("tries %q, %q", addr, status)
	}
	for _, g := range gates {
		g.open()
	}
	p.waitConns(0)
}

func TestHedgesKeepToTheLimitsOfTries(t *testing.T) {
	t.Parallel()
	// The number of servers that are asked: one may be after the delay, which is
	// later than the time.
	for option, n := range map[string]int{"next_upstream_tries 2": 2, "next_upstream_timeout 10ms": 1} {
		b, gates := gated(t, 3)
		gates[2].open()
		p := hedged(t, b, "", option)
		_, answer := p.later("GET", "/first", "")
		waitConnecting(t, b[:n]...)
		select {
		case res := <-answer:
			t.Errorf("%s: answer %q, want none yet", option, res.Text())
		case <-time.After(500 * time.Millisecond): // ten delays
		}
		if got := accepted(b[n]); got != 0 {
			t.Errorf("%s: %d connections to one more server", option, got)
		}
		gates[n-1].open()
		answered(t, answer, b[n-1], string("ab"[n-1]))
		gates[0].open()
		p.waitConns(0)
	}
}

// TestNextUpstreamOffHedgesAllTheSame: what was not sent is not sent twice.
func TestNextUpstreamOffHedgesAllTheSame(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	gates[1].open()
	p := hedged(t, b, "", "next_upstream off")
	_, answer := p.later("POST", "/first", "content")
	answered(t, answer, b[1], "b")
	gates[0].open()
	p.waitConns(0)
}

// TestAServerThatRefusesLeavesTheRequestToTheSlowOne, whatever next_upstream
// says: without a hedge it would have had it, too.
func TestAServerThatRefusesLeavesTheRequestToTheSlowOne(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"", "next_upstream off"} {
		b, gates := gated(t, 2)
		p := hedged(t, b, "", option)
		b[1].Stop()
		_, answer := p.later("GET", "/first", "")
		p.WaitLog(t, "server temporarily disabled", map[string]any{"server": b[1].Addr()})
		gates[0].open()
		answered(t, answer, b[0], "a")
		if addr, status := p.tries("/first"); addr != addrs(b[1], b[0]) || status != "502, 200" {
			t.Errorf("tries %q, %q", addr, status)
		}
		p.waitConns(0)
	}
}

func TestWhenNoneConnectsTheLastOneDecidesTheStatus(t *testing.T) {
	t.Parallel()
	b, _ := gated(t, 2)
	p := hedged(t, b, "", "connect_timeout 1s")
	b[1].Stop()
	if res := p.get("/first"); res.Status != 504 {
		t.Errorf("status %d, want 504: the slow server timed out", res.Status)
	}
	if addr, status := p.tries("/first"); addr != addrs(b...) || status != "504, 502" {
		t.Errorf("tries %q, %q", addr, status)
	}
	for _, s := range p.servers("app") {
		if s.State.Failures != 1 {
			t.Errorf("%s: %d failures, want 1", s.Address, s.State.Failures)
		}
	}
	p.waitConns(0)
}

func TestASlowServerThatNeverConnectsIsDisabledInTheBackground(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	gates[1].open()
	p := hedged(t, b, "", "connect_timeout 1s")
	if got := p.bodies(1, "/first"); got != "b" {
		t.Fatalf("answer %s", got)
	}
	p.WaitLog(t, "server temporarily disabled", map[string]any{"server": b[0].Addr()})
	if got, want := p.bodies(10, "/"), repeat("b", 10); got != want {
		t.Errorf("answers %s", got)
	}
	if s := p.servers("app")[0].State; s.Picks != 1 || s.Failures != 1 || !strings.Contains(s.LastError, "timeout") {
		t.Errorf("a: %+v, want one pick and its timeout", s)
	}
	p.waitConns(0)
}

// TestAServerThatFailsAfterItHasWon leaves the request to the slow one, if it may
// be repeated.
func TestAServerThatFailsAfterItHasWon(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{"GET": "a", "POST": "502"} {
		for _, late := range []bool{false, true} { // whether a connects before b fails
			b, gates := gated(t, 2)
			hold := make(chan struct{})
			gates[1].open()
			p := hedged(t, b, "", "")
			b[1].SetAnswer(testnet.Answer{None: true, Then: testnet.Close, Hold: hold})
			_, answer := p.later(method, "/first", "content")
			b[1].WaitRequests(1)
			if late {
				gates[0].open()
				testnet.Eventually(t, 30*time.Second, "only b held", func() bool { return p.conns() == 1 })
			}
			close(hold)
			if !late && want != "502" {
				p.WaitLog(t, "server temporarily disabled", map[string]any{"server": b[1].Addr()})
				gates[0].open()
			}
			res := <-answer
			if got := res.Text(); got != want && fmt.Sprint(res.Status) != want {
				t.Errorf("%s, late %v: answer %d %q, want %s", method, late, res.Status, got, want)
			}
			if n := accepted(b[0]); n != 1 {
				t.Errorf("%s, late %v: %d connections to a, want 1", method, late, n)
			}
			gates[0].open()
			p.waitConns(0)
		}
	}
}

func TestAClientThatLeavesEndsAllConnectionsThatAreBeingMade(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	p := hedged(t, b, "", "keepalive off")
	for _, g := range gates {
		g.open()
	}
	p.bodies(4, "/")
	for _, g := range gates {
		g.close()
	}
	base := p.Usage()
	for _, method := range []string{"GET", "POST"} {
		c, _ := p.later(method, "/"+method, "content")
		waitConnecting(t, b...)
		c.Close()
		p.quiet(base)
		for i, x := range b {
			gates[i].open()
			testnet.Eventually(t, 30*time.Second, "no connection to "+x.Addr(), func() bool {
				open, _ := x.Conns()
				return open == 0
			})
			gates[i].close()
		}
		if l := p.access("/" + method); l.Fields["status"] != float64(499) {
			t.Errorf("%s: status %v, want 499", method, l.Fields["status"])
		}
	}
	for _, s := range p.servers("app") {
		if s.State.Failures != 0 {
			t.Errorf("%s: %d failures, want none", s.Address, s.State.Failures)
		}
	}
}

// TestAClientThatLeavesLaterEndsOnlyItsOwnRequest: the slow connection is nobody's
// by then, and what becomes of it is worth knowing.
func TestAClientThatLeavesLaterEndsOnlyItsOwnRequest(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	gates[1].open()
	b[1].SetAnswer(testnet.Silent)
	p := hedged(t, b, "", "connect_timeout 3s")
	c, _ := p.later("GET", "/first", "")
	b[1].WaitRequests(1)
	c.Close()
	p.waitConns(1)
	p.WaitLog(t, "server temporarily disabled", map[string]any{"server": b[0].Addr()})
	p.waitConns(0)
}

func TestAReloadLeavesSlowConnectionsToEndByThemselves(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 3)
	p := hedged(t, b, "", "")
	_, answer := p.later("GET", "/first", "")
	waitConnecting(t, b[0], b[1])
	if err := p.Reload(config(group("app", b[2].Addr()), "\trespond other"), nil); err != nil {
		t.Fatal(err)
	}
	gates[1].open()
	answered(t, answer, b[1], "b")
	gates[0].open()
	gates[2].open() // a slow reload has it connected too
	for _, x := range b[:2] {
		testnet.Eventually(t, 30*time.Second, "no connection to "+x.Addr(), func() bool {
			open, _ := x.Conns()
			return open == 0
		})
	}
	p.waitConns(0)
}

func TestTheCookieIsThatOfTheServerThatAnswers(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	gates[1].open()
	p := hedged(t, b, "sticky cookie srv", "")
	_, answer := p.later("GET", "/first", "")
	res := <-answer
	cookie, _, _ := strings.Cut(res.Get("Set-Cookie"), ";")
	if res.Text() != "b" || cookie == "" {
		t.Fatalf("answer %q, cookie %q", res.Text(), cookie)
	}
	gates[0].open()
	p.waitConns(0)
	for range 4 {
		if got := p.get("/", "Cookie: "+cookie).Text(); got != "b" {
			t.Errorf("with the cookie: answer %s, want b", got)
		}
	}
}

func TestABodyThatIsNotBufferedGoesToTheWinnerWhole(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789abcdef", 1<<15)
	for _, option := range []string{"", "request_buffering off"} {
		b, gates := gated(t, 2)
		p := hedged(t, b, "", option)
		_, answer := p.later("POST", "/first", body)
		waitConnecting(t, b...)
		gates[0].open()
		answered(t, answer, b[0], "a")
		if got := len(b[0].Requests()[0].Body); got != len(body) {
			t.Errorf("%q: %d bytes of the body arrived, want %d", option, got, len(body))
		}
		gates[1].open()
		p.waitConns(0)
	}
}

// TestConnectionsOfOneClientAreNotKept: their PROXY header names it.
func TestConnectionsOfOneClientAreNotKept(t *testing.T) {
	t.Parallel()
	b, gates := gated(t, 2)
	p := hedged(t, b, "", "proxy_protocol v1\n\t\tnext_upstream_tries 2")
	c, _ := p.later("GET", "/first", "")
	waitConnecting(t, b...)
	c.Close()
	for i := range b {
		gates[i].open()
	}
	p.waitConns(0)
	for _, x := range b {
		testnet.Eventually(t, 30*time.Second, "no connection to "+x.Addr(), func() bool {
			open, _ := x.Conns()
			return open == 0
		})
	}
}
