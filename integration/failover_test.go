// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestADeadThirdServerCostsOneRetryAndOneWarning(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr(), dead), `
	proxy_pass app {
		header_down X-Addr {http.upstream.addr}
		header_down X-Status {http.upstream.status}
	}`)
	var third testnet.Response
	for i, want := range strings.Fields("a b a b a b") {
		res := p.get(fmt.Sprintf("/%d", i+1))
		if res.Status != 200 || res.Text() != want {
			t.Errorf("request %d: %d %q, want 200 %q", i+1, res.Status, res.Text(), want)
		}
		if i == 2 {
			third = res
		}
	}
	tried := dead + ", " + b[0].Addr()
	if got := third.Get("X-Addr"); got != tried {
		t.Errorf("third request: {http.upstream.addr} = %q, want %q", got, tried)
	}
	if got := third.Get("X-Status"); got != "502, 200" {
		t.Errorf("third request: {http.upstream.status} = %q, want %q", got, "502, 200")
	}
	if addr, status := p.tries("/3"); addr != tried || status != "502, 200" {
		t.Errorf("third request: access log has %q, %q", addr, status)
	}
	warnings := p.logs("server temporarily disabled", "app", 1)
	if len(warnings) != 1 {
		t.Fatalf("%d warnings, want 1", len(warnings))
	}
	if w := warnings[0]; w.Fields["level"] != "warn" || !w.Has(map[string]any{"server": dead, "fails": 1, "fail_timeout": 10}) ||
		!strings.Contains(fmt.Sprint(w.Fields["error"]), "refused") {
		t.Errorf("warning %s", w.Text)
	}
	s := p.servers("app")[2]
	if s.State.State != "unhealthy" || s.State.Picks != 1 || s.State.Fails != 1 {
		t.Errorf("the dead server is %+v, want unhealthy after one pick", s.State)
	}
}

func TestRefusedAloneIs502(t *testing.T) {
	t.Parallel()
	p := serve(t, group("app", testnet.RefusedAddr(t)), "\tproxy_pass app")
	if res := p.get("/"); res.Status != 502 {
		t.Errorf("status %d, want 502", res.Status)
	}
}

// The backend answers after 3 s, so that a read_timeout that is late is a 200.
func TestABackendThatIsSilentFor3SecondsIs504AfterAReadTimeoutOf1Second(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Body: "late", Delay: 3 * time.Second})
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app {\n\t\tread_timeout 1s\n\t}")
	for try := 1; ; try++ {
		began := time.Now()
		res := p.get("/")
		switch d := time.Since(began); {
		case res.Status == 504 && d >= time.Second:
			return
		case res.Status == 200 && try < 3: // a machine that stands still for 2 s
			t.Logf("%q after %v", res.Text(), d)
		default:
			t.Fatalf("try %d: status %d after %v, want 504 after 1 s", try, res.Status, d)
		}
	}
}

func TestNextUpstreamOffFailsTheRequestButCountsTheFailure(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, group("app", testnet.RefusedAddr(t), b[0].Addr()), "\tproxy_pass app {\n\t\tnext_upstream off\n\t}")
	if got, want := p.bodies(3, "/"), "502 a a"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
}

// CASES 19.
func TestFailuresAddUpAlthoughSuccessesLieBetween(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	failing := func(r testnet.Request) testnet.Answer {
		if r.Target() == "/fail" {
			return testnet.StatusAnswer(500)
		}
		return named("a")
	}
	b[0].Script(failing)
	p := serve(t, group("app", b[0].Addr()+" max_fails=3 fail_timeout=3s", b[1].Addr()),
		"\tproxy_pass app {\n\t\tnext_upstream http_500\n\t}")
	state := func() string { return p.servers("app")[0].State.State }
	// The first success of all begins a quiet period, so it comes first.
	began := time.Now()
	p.bodies(2, "/")
	for i, at := range []time.Duration{0, 2000, 4000} {
		testnet.Eventually(t, 10*time.Second, "the time of the next failure", func() bool {
			return time.Since(began) >= at*time.Millisecond
		})
		// Weights are 1 and EW falls: ask until a has failed.
		for p.servers("app")[0].State.Fails == i {
			p.get("/fail")
		}
		if i < 2 {
			if state() != "up" {
				t.Fatalf("after %d failures a is %s, want up", i+1, state())
			}
			p.bodies(2, "/")
		}
	}
	if state() != "unhealthy" {
		t.Errorf("after three failures within two fail_timeouts a is %s, want unhealthy", state())
	}
}

// CASES 20.
func Test403And404GoToTheNextServerAndAreNoFailure(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr()), "\tproxy_pass app {\n\t\tnext_upstream http_403 http_404\n\t}")
	for _, status := range []int{403, 404} {
		b[0].SetAnswer(testnet.StatusAnswer(status))
		target := fmt.Sprintf("/%d", status)
		if got, want := p.bodies(4, target), repeat("b", 4); got != want {
			t.Errorf("a answers %d: answers %s, want %s", status, got, want)
		}
		if _, got := p.tries(target); got != fmt.Sprintf("%d, 200", status) {
			t.Errorf("tries have status %q, want %d, 200", got, status)
		}
	}
	if n := len(p.logs("server temporarily disabled", "app", 0)); n != 0 {
		t.Errorf("%d warnings, want none", n)
	}
	if s := p.servers("app")[0].State; s.Fails != 0 || s.Failures != 0 || s.State != "up" {
		t.Errorf("state %+v, want up without failures", s)
	}
}

// CASES 21.
func TestA503CountsOnlyWhereHTTP503IsConfigured(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	b[0].SetAnswer(testnet.StatusAnswer(503))
	p := serve(t, group("plain", b[0].Addr(), b[1].Addr())+group("listed", b[0].Addr(), b[1].Addr()), `
	proxy_pass /plain plain
	proxy_pass /listed listed {
		next_upstream http_503
	}`)
	if got, want := p.bodies(4, "/plain"), "503 b 503 b"; got != want {
		t.Errorf("not listed: answers %s, want %s", got, want)
	}
	if got, want := p.bodies(4, "/listed"), "b b b b"; got != want {
		t.Errorf("listed: answers %s, want %s", got, want)
	}
	if a, b := p.servers("plain")[0].State.State, p.servers("listed")[0].State.State; a != "up" || b != "unhealthy" {
		t.Errorf("the server is %s and %s, want up and unhealthy", a, b)
	}
}

// CASES 22. What breaks after the header is no failure, and nothing is repeated.
func TestAResetWhileTheBodyIsReadIsNoFailureAndSendsNothingTwice(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	for _, s := range b {
		s.SetAnswer(testnet.Answer{Header: []string{"Content-Length: 100"}, Body: "12345", Then: testnet.Reset})
	}
	p := serve(t, group("app", b[0].Addr(), b[1].Addr()),
		"\tproxy_pass app {\n\t\tnext_upstream error timeout invalid_header http_500 http_502 non_idempotent\n\t}")
	c := p.dial()
	res, err := c.Do("GET", "/", nil, nil)
	if err == nil {
		t.Errorf("the body came whole: %q", res.Body)
	}
	if res.Status != 200 || !bytes.HasPrefix([]byte("12345"), res.Body) {
		t.Errorf("status %d, body %q, want 200 and the beginning of 12345", res.Status, res.Body)
	}
	p.waitConns(0)
	if n := len(b[0].Requests()) + len(b[1].Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if s := p.live("app")[0].State; s.State != "up" || s.Failures != 0 || s.Broken != 1 {
		t.Errorf("state %+v, want up without failures and with one broken response", s)
	}
}

func TestAClientThatLeavesBreaksNoResponse(t *testing.T) {
	t.Parallel()
	a := newLeaving(t)
	p := serve(t, group("app", a.Addr()), "\tproxy_pass /ours* app\n\treverse_proxy {\n\t\tlb_policy upstream app\n\t}")
	for _, path := range []string{"/ours/half", "/caddys/half"} {
		s := p.raw("GET " + path + " HTTP/1.1\nHost: x\n\n")
		s.answer()
		s.Close()
		p.waitConns(0)
	}
	if s := p.live("app")[0].State; s.Broken != 0 || s.Failures != 0 {
		t.Errorf("state %+v, want nothing that the server broke", s)
	}
	a.Stop()
}

// CASES 23.
func TestTheSameAddressInTwoGroupsHasTwoStates(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("one", dead, b[0].Addr())+group("two", dead, b[0].Addr()),
		"\tproxy_pass /one one\n\tproxy_pass /two two")
	p.bodies(2, "/one")
	if a, b := p.servers("one")[0].State.State, p.servers("two")[0].State.State; a != "unhealthy" || b != "up" {
		t.Errorf("the dead server is %s and %s, want unhealthy and up", a, b)
	}
}

// CASES 25.
func TestOneOfTwoServersDeadFailsNoneOf400RequestsAndNoneMeetsAServerTwice(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", dead+" max_fails=0", b[0].Addr()), `
	proxy_pass app {
		header_down X-Addr {http.upstream.addr}
	}`)
	browser := testnet.Browser{Addr: p.Addr("front")}
	defer browser.Close()
	retried := 0
	for i := range 400 {
		res, err := browser.Get("/")
		if err != nil || res.Status != 200 {
			t.Fatalf("request %d: status %d, %v", i+1, res.Status, err)
		}
		switch res.Get("X-Addr") {
		case b[0].Addr():
		case dead + ", " + b[0].Addr():
			retried++
		default:
			t.Fatalf("request %d tried %s", i+1, res.Get("X-Addr"))
		}
	}
	if retried < 190 || retried > 210 {
		t.Errorf("%d requests tried the dead server first, want about half", retried)
	}
}

// CASES 26.
func TestAClosedConnectionIsRepeatedForIdempotentMethodsOnly(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	b[0].SetAnswer(testnet.CloseUnanswered)
	p := serve(t, group("app", b[0].Addr()+" max_fails=0", b[1].Addr()+" backup"), `
	proxy_pass /any app {
		next_upstream error non_idempotent
	}
	proxy_pass app`)
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "LOCK", "PATCH"} {
		repeatable := !slices.Contains([]string{"POST", "LOCK", "PATCH"}, method)
		for target, want := range map[string]bool{"/": repeatable, "/any": true} {
			b[0].Forget()
			res := testnet.Do(t, method, p.URL("front")+target, nil, nil)
			if (res.Status == 200) != want || (res.Status == 502) == want {
				t.Errorf("%s %s: status %d, repeated should be %v", method, target, res.Status, want)
			}
			if n := len(b[0].Requests()); n != 1 {
				t.Errorf("%s %s: the first server got it %d times, want once", method, target, n)
			}
		}
	}
}

// CASES 27.
func TestAPostOf1MiBRefusedByTheFirstServerReachesTheSecondWhole(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("app", testnet.RefusedAddr(t), b.Addr()), `
	proxy_pass /stream app {
		request_buffering off
	}
	proxy_pass app`)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, target := range []string{"/", "/stream"} {
		b.Forget()
		if res := p.post(target, content); res.Status != 200 {
			t.Errorf("%s: status %d, want 200", target, res.Status)
		}
		if got := b.WaitRequests(1)[0]; got.BodySHA256 != testnet.SHA256(content) {
			t.Errorf("%s: the second server got another body", target)
		}
	}
}

// CASES 28.
func TestABufferedBodyIsRepeatedWholeAndATooLargeOneNever(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	b[0].SetAnswer(testnet.CloseUnanswered)
	p := serve(t, group("app", b[0].Addr()+" max_fails=0", b[1].Addr()+" backup"), `
	proxy_pass app {
		next_upstream error timeout non_idempotent
		request_max_temp_file 2MiB
	}`)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if res := p.post("/", content); res.Status != 200 {
		t.Errorf("1 MiB: status %d, want 200", res.Status)
	}
	if got := b[1].WaitRequests(1)[0]; got.BodySHA256 != testnet.SHA256(content) {
		t.Error("1 MiB: the second server got another body")
	}
	b[1].Forget()
	if res := p.post("/", bytes.Repeat(content, 3)); res.Status != 502 {
		t.Errorf("3 MiB: status %d, want 502", res.Status)
	}
	if n := len(b[1].Requests()); n != 0 {
		t.Errorf("3 MiB: the second server got %d requests, want none", n)
	}
}

// CASES 29.
func TestTheLastServersOwn503IsPassedOn(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	b[0].SetAnswer(testnet.Answer{Status: 503, Body: "first"})
	p := serve(t, group("one", b[0].Addr(), b[1].Addr())+group("both", b[0].Addr(), b[1].Addr()), `
	proxy_pass /one one {
		next_upstream http_503
	}
	proxy_pass /both both {
		next_upstream http_503
	}`)
	if got := p.bodies(1, "/one"); got != "b" {
		t.Errorf("503 then 200: answer %s, want b", got)
	}
	b[1].SetAnswer(testnet.Answer{Status: 503, Header: []string{"X-Own: yes"}, Body: "second"})
	res := p.get("/both")
	if res.Status != 503 || res.Text() != "second" || res.Get("X-Own") != "yes" {
		t.Errorf("both 503: %d %q, want the second server's own", res.Status, res.Text())
	}
}

// CASES 30.
func TestTriesAndTimeLimitTheWalkEachForItself(t *testing.T) {
	t.Parallel()
	slow := make([]*testnet.Backend, 3)
	for i := range slow {
		slow[i] = testnet.NewBackend(t, testnet.Silent)
	}
	dead := []string{testnet.RefusedAddr(t), testnet.RefusedAddr(t), testnet.RefusedAddr(t)}
	p := serve(t, group("slow", slow[0].Addr(), slow[1].Addr(), slow[2].Addr())+group("dead", dead...), `
	proxy_pass /tries dead {
		next_upstream_tries 2
	}
	proxy_pass /time slow {
		read_timeout 1s
		next_upstream_timeout 1800ms
	}`)
	if got := p.bodies(1, "/tries"); got != "502" {
		t.Errorf("tries 2: answer %s, want 502", got)
	}
	if addr, status := p.tries("/tries"); addr != dead[0]+", "+dead[1] || status != "502, 502" {
		t.Errorf("tries 2: tried %q, %q", addr, status)
	}
	if got := p.bodies(1, "/time"); got != "504" {
		t.Errorf("time: answer %s, want 504", got)
	}
	if _, status := p.tries("/time"); status != "504, 504" {
		t.Errorf("time: tries %q, want a second try after 1 s and none after 2", status)
	}
}

// CASES 30. A request meets 20 dead servers before one that answers; 20 requests to
// that one alone are as many round trips and more. With the 250 ms that Caddy waits
// between tries the first would be 5 s longer.
func TestTheNextTryIsImmediate(t *testing.T) {
	t.Parallel()
	const n = 20
	b := backends(t, 1)
	lines := make([]string, n, n+1)
	for i := range lines {
		lines[i] = testnet.RefusedAddr(t) + " max_fails=0"
	}
	p := serve(t, group("dead", append(lines, b[0].Addr()+" backup")...)+group("alive", b[0].Addr()),
		"\tproxy_pass /dead* dead\n\tproxy_pass /alive alive")
	c := p.dial()
	get := func(target string) {
		t.Helper()
		if res, err := c.Do("GET", target, nil, nil); err != nil || res.Text() != "a" {
			t.Fatalf("GET %s: %q, %v, want a", target, res.Body, err)
		}
	}
	walk, single := time.Hour, time.Hour // the shortest times
	for i := range 5 {
		began := time.Now()
		get(fmt.Sprintf("/dead/%d", i))
		walk = min(walk, time.Since(began))
		began = time.Now()
		for range n {
			get("/alive")
		}
		single = min(single, time.Since(began))
		if _, status := p.tries(fmt.Sprintf("/dead/%d", i)); status != strings.Repeat("502, ", n)+"200" {
			t.Fatalf("tries have status %s, want %d times 502 and a 200", status, n)
		}
	}
	t.Logf("%d tries and one more in %v, %d requests in %v", n, walk, n, single)
	if walk > 3*single {
		t.Errorf("%d further tries of one request took %v, %d requests %v: want no wait between tries", n, walk, n, single)
	}
}
