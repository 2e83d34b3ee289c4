// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// CASES 2.
func TestWeights511GiveNginxsOrderTwiceAndLogItsCurrentWeights(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, group("app", b[0].Addr()+" weight=5", b[1].Addr(), b[2].Addr()), "\tproxy_pass app")
	if got, want := p.bodies(14, "/"), "a a b a c a a a a b a c a a"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
	var weights []any
	for _, l := range p.logs("peer selected", "app", 14)[:7] {
		weights = append(weights, l.Fields["current_weight"])
		if l.Fields["level"] != "debug" {
			t.Errorf("level of %s is not debug", l.Text)
		}
	}
	if got, want := fmt.Sprint(weights), "[-2 -4 -4 -1 -2 2 0]"; got != want {
		t.Errorf("current weights %s, want %s", got, want)
	}
	first := p.logs("peer selected", "app", 1)[0]
	if want := map[string]any{"peer": b[0].Addr(), "tries_left": 2}; !first.Has(want) {
		t.Errorf("first pick logs %s, want %v", first.Text, want)
	}
}

func TestTheAPIHasNginxsCurrentWeightsAfterEachPick(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, group("app", b[0].Addr()+" weight=5", b[1].Addr(), b[2].Addr()), "\tproxy_pass app")
	// nginx's own, of all three servers: with each pick a server gains its weight,
	// and the one that is picked loses the sum of them.
	for cycle := range 2 {
		for i, want := range []struct{ picked, weights string }{
			{"a", "[-2 1 1]"}, {"a", "[-4 2 2]"}, {"b", "[1 -4 3]"}, {"a", "[-1 -3 4]"}, {"c", "[4 -2 -2]"}, {"a", "[2 -1 -1]"}, {"a", "[0 0 0]"},
		} {
			picked := p.bodies(1, "/")
			var weights, effective []int
			for _, s := range p.servers("app") {
				weights = append(weights, s.State.CurrentWeight)
				effective = append(effective, s.State.EffectiveWeight)
			}
			if picked != want.picked || fmt.Sprint(weights) != want.weights || fmt.Sprint(effective) != "[5 1 1]" {
				t.Errorf("cycle %d, request %d: %s, current weights %v, effective %v; want %s, %s, [5 1 1]", cycle, i+1, picked, weights, effective, want.picked, want.weights)
			}
		}
	}
}

// CASES 1 and 2.
func TestReorderingServerLinesChangesNoServersShare(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	heavy, light := b[0].Addr()+" weight=3", b[1].Addr()
	p := serve(t, group("one", heavy, light)+group("two", light, heavy),
		"\tproxy_pass /one one\n\tproxy_pass /two two")
	if got, want := p.bodies(8, "/one"), "a a b a a a b a"; got != want {
		t.Errorf("weights 3,1: answers %s, want %s", got, want)
	}
	got := p.bodies(8, "/two")
	if a, b := strings.Count(got, "a"), strings.Count(got, "b"); a != 6 || b != 2 {
		t.Errorf("lines in the other order: answers %s, want 6 a and 2 b", got)
	}
}

// CASES 3.
func TestAServerWithoutOptionsInAStaticListHasWeightOne(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, "", fmt.Sprintf(`
	reverse_proxy %s %s %s {
		lb_policy smooth_round_robin {
			server %s weight=2
		}
	}`, b[0].Addr(), b[1].Addr(), b[2].Addr(), b[0].Addr()))
	if got, want := p.bodies(8, "/"), "a b c a a b c a"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
}

// CASES 13.
func TestABackupAnswersWhileThePrimaryRefusesAndNotAfterItIsBack(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	b[0].Stop()
	p := serve(t, group("app", b[0].Addr()+" fail_timeout=2s", b[1].Addr()+" backup"), "\tproxy_pass app")
	if got, want := p.bodies(50, "/"), repeat("b", 50); got != want {
		t.Errorf("primary down: answers %s", got)
	}
	b[0].Restart()
	testnet.Eventually(t, 10*time.Second, "the primary answers again", func() bool { return p.get("/").Text() == "a" })
	p.WaitLog(t, "server recovered", map[string]any{"group": "app", "server": b[0].Addr()})
	if got, want := p.bodies(10, "/"), repeat("a", 10); got != want {
		t.Errorf("primary back: answers %s, want %s", got, want)
	}
}

// CASES 15.
func TestMaxConnsIsExactAmongParallelAndSlowlyUploadingClients(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Body: "ok", Delay: 5 * time.Millisecond})
	p := serve(t, group("app", b.Addr()+" max_conns=2"), `
	proxy_pass /stream app {
		request_buffering off
	}
	proxy_pass app`)
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range 200 {
		wg.Go(func() {
			status, err := slowOrPlain(p, i)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			statuses[status]++
		})
	}
	wg.Wait()
	if _, most := b.InFlight(); most > 2 {
		t.Errorf("%d requests at the backend at once, want at most 2", most)
	}
	if statuses[200] == 0 || statuses[200]+statuses[502] != 200 {
		t.Errorf("statuses %v, want 200 and 502 only", statuses)
	}
	p.waitConns(0)
}

// slowOrPlain sends a GET, or as every fourth an upload in two parts.
func slowOrPlain(p *proxy, i int) (int, error) {
	c, err := testnet.Dial(p.Addr("front"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if i%4 != 0 {
		res, err := c.Do("GET", "/", nil, nil)
		return res.Status, err
	}
	err = c.Send("POST /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234")
	if err != nil {
		return 0, err
	}
	time.Sleep(20 * time.Millisecond) // a slow client, not a wait
	_ = c.Send("56789")               // an early 502 may have closed the connection
	res, err := c.Receive("POST")
	return res.Status, err
}

// CASES 17.
func TestMaxConnsNeverRefusesRequestsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, group("app", b[0].Addr()+" max_conns=2"), "\tproxy_pass app")
	if got, want := p.bodies(100, "/"), repeat("a", 100); got != want {
		t.Errorf("answers %s", got)
	}
	p.waitConns(0)
}

func TestASingleServerIsNeverMarkedDown(t *testing.T) {
	t.Parallel()
	groups, site := "", ""
	targets := []string{"none", "one", "three", "beside", "counts"}
	b := backends(t, len(targets))
	for i, lines := range [][]string{
		{b[0].Addr() + " max_fails=0"},
		{b[1].Addr() + " max_fails=1"},
		{b[2].Addr() + " max_fails=3 weight=6"},
		{b[3].Addr() + " max_fails=1", testnet.RefusedAddr(t) + " down"},
		{b[4].Addr() + " max_fails=3", testnet.RefusedAddr(t) + " down", "single_counts_down on"},
	} {
		groups += group(targets[i], lines...)
		site += fmt.Sprintf("\tproxy_pass /%s %s\n", targets[i], targets[i])
	}
	p := serve(t, groups, site)
	for _, s := range b {
		s.Stop()
	}
	for _, name := range targets {
		if got, want := p.bodies(5, "/"+name), repeat("502", 5); got != want {
			t.Errorf("%s refused: answers %s, want %s", name, got, want)
		}
	}
	for _, s := range b {
		s.Restart()
	}
	for i, want := range []string{"a", "b", "c", "d", "502"} {
		if got := p.bodies(1, "/"+targets[i]); got != want {
			t.Errorf("%s is back: answer %s, want %s", targets[i], got, want)
		}
	}
	for i, name := range targets {
		warnings, fails := 0, 0
		if name == "counts" {
			warnings, fails = 1, 3
		}
		if got := len(p.logs("server temporarily disabled", name, warnings)); got != warnings {
			t.Errorf("group %s: %d warnings, want %d", name, got, warnings)
		}
		s := p.servers(name)[0]
		if s.State.Fails != fails || fails == 0 && s.State.EffectiveWeight != s.Weight {
			t.Errorf("group %s: %+v, want %d fails", name, s, fails)
		}
		if want := len(b[i].Requests()); (want == 1) != (fails == 0) {
			t.Errorf("group %s: its server got %d requests after it was back", name, want)
		}
	}
}

func TestEverythingDownIs502AtOnceWithoutSpinning(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dead := []string{testnet.RefusedAddr(t), testnet.RefusedAddr(t)}
	observed := []string{testnet.RefusedAddr(t), testnet.RefusedAddr(t)}
	p := serve(t, group("app", dead...)+group("seen", observed...)+group("alive", b[0].Addr()), `
	proxy_pass /app app
	proxy_pass /alive alive
	reverse_proxy /seen {
		lb_policy upstream seen
		lb_retries 1
	}`)
	p.get("/app?first")
	p.get("/seen?first")
	const rounds = 50
	before := cpuTime(t, p.PID())
	took := map[string][]time.Duration{}
	for range rounds {
		for target, want := range map[string]int{"/app": 502, "/seen": 503, "/alive": 200} {
			began := time.Now()
			if res := p.get(target); res.Status != want {
				t.Fatalf("%s: status %d, want %d", target, res.Status, want)
			}
			took[target] = append(took[target], time.Since(began))
		}
	}
	// Spinning for as little as 50 ms in each of the 100 refusals would be 5 s.
	if used := cpuTime(t, p.PID()) - before; used > 3*time.Second {
		t.Errorf("%d refusals used %v of CPU", 2*rounds, used)
	}
	median := func(target string) time.Duration {
		slices.Sort(took[target])
		return took[target][rounds/2]
	}
	for _, target := range []string{"/app", "/seen"} {
		t.Logf("%s took %v, /alive %v", target, median(target), median("/alive"))
		if median(target) > 5*median("/alive") {
			t.Errorf("%s took %v, a request to a server %v: want the answer at once", target, median(target), median("/alive"))
		}
	}
	for _, g := range []string{"app", "seen"} {
		lines := p.logs("no live upstreams", g, rounds)
		if lines[0].Fields["level"] != "error" {
			t.Errorf("group %s: %s, want an ERROR", g, lines[0].Text)
		}
	}
	addr, status := p.tries("/app?first")
	if want := strings.Join(dead, ", "); addr != want || status != "502, 502" {
		t.Errorf("first request: tries %q, %q, want %q, %q", addr, status, want, "502, 502")
	}
	if addr, status := p.tries("/app"); addr != "app" || status != "502" {
		t.Errorf("later request: tries %q, %q, want the group's name and 502", addr, status)
	}
	if p.conns() != 0 {
		t.Error("leases are left open")
	}
}

func TestLeastConnPrefersTheIdleServerAndUsesBackupsLast(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	hold := make(chan struct{})
	b[0].Script(func(r testnet.Request) testnet.Answer {
		if r.Target() == "/hold" {
			return testnet.Answer{Body: "a", Hold: hold}
		}
		return named("a")
	})
	p := serve(t, group("app", "least_conn", b[0].Addr(), b[1].Addr(), b[2].Addr()+" backup"), "\tproxy_pass app")
	done := make(chan int, 1)
	c := p.dial()
	go func() {
		res, err := c.Do("GET", "/hold", nil, nil)
		if err != nil {
			t.Error(err)
		}
		done <- res.Status
	}()
	b[0].WaitRequests(1)
	if got, want := p.bodies(6, "/"), repeat("b", 6); got != want {
		t.Errorf("while a is busy: answers %s, want %s", got, want)
	}
	close(hold)
	if status := <-done; status != http.StatusOK {
		t.Errorf("held request: status %d, want 200", status)
	}
	p.waitConns(0)
	got := strings.Fields(p.bodies(6, "/"))
	slices.Sort(got)
	if want := "[a a a b b b]"; fmt.Sprint(got) != want {
		t.Errorf("idle servers: answers %v, want %s", got, want)
	}
	b[0].Stop()
	b[1].Stop()
	if got := p.bodies(2, "/"); got != "c c" {
		t.Errorf("primaries refuse: answers %s, want c c", got)
	}
}
