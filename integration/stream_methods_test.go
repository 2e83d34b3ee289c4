// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// lineServers are n line backends, which the tests call a, b, c...
type lineServers []*testnet.Lines

func newLineServers(t *testing.T, n int) lineServers {
	t.Helper()
	e := make(lineServers, n)
	for i := range e {
		e[i] = testnet.NewLines(t, "")
	}
	return e
}

func (e lineServers) addrs() (out []string) {
	for _, l := range e {
		out = append(out, l.Addr())
	}
	return out
}

// names says who has answered n sessions at a listener, one after the other; -
// is nobody.
func (e lineServers) names(p *proxy, n int, listener string) string {
	p.t.Helper()
	out := make([]string, n)
	for i := range out {
		s := p.tcp(listener)
		_, _ = io.WriteString(s, "x\n") // a session without a server is closed
		port, _, _ := strings.Cut(strings.TrimSpace(s.oneLine()), " ")
		at := slices.IndexFunc(e, func(l *testnet.Lines) bool { return fmt.Sprint(l.Port()) == port })
		out[i] = "-"
		if at >= 0 {
			out[i] = string(rune('a' + at))
		}
		s.Close()
	}
	return strings.Join(out, " ")
}

// oneLine is one line, or nothing if the session was closed.
func (s *session) oneLine() string {
	line, _ := s.r.ReadString('\n')
	return line
}

// listeners is a stream server for each group, named like it.
func listeners(groups ...string) string {
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "\t\tserver %s {\n\t\t\tproxy_pass %s\n\t\t}\n", front(g), g)
	}
	return b.String()
}

func TestStreamRandomReachesAllServersButTheOnesThatAreDown(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 3)
	methods := map[string]string{"one": "random", "two": "random two", "conns": "random two least_conn"}
	var groups string
	for name, method := range methods {
		groups += group(name, method, e[0].Addr(), e[1].Addr(), e[2].Addr()+" down")
	}
	p := serveStream(t, groups, listeners("one", "two", "conns"))
	for name, method := range methods {
		got := e.names(p, 60, name)
		if strings.Count(got, "a") < 10 || strings.Count(got, "b") < 10 || strings.ContainsAny(got, "c-") {
			t.Errorf("%s: %s, want a and b", method, got)
		}
	}
}

func TestStreamLeastConnAvoidsTheServerWithSessions(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 2)
	p := serveStream(t, group("app", append(e.addrs(), "least_conn")...), listeners("app"))
	first := p.tcp("app")
	if got, want := first.ask("x"), fmt.Sprintf("%d X", e[0].Port()); got != want {
		t.Fatalf("the first session got %q, want %q", got, want)
	}
	for range 4 { // each ended before the next begins
		if got := e.names(p, 1, "app"); got != "b" {
			t.Errorf("while a has a session: %s, want b", got)
		}
		p.waitConns(1)
	}
}

// slowLine answers a line after a pause that is more than a busy machine makes of
// nothing.
func slowLine(t *testing.T) string {
	return testnet.NewTCP(t, func(c net.Conn, _ int) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			time.Sleep(600 * time.Millisecond)
			_, _ = io.WriteString(c, "0 slow\n")
		}
	}).Addr()
}

func TestStreamLeastTimeAvoidsTheSlowServer(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 1)
	slow := slowLine(t)
	methods := map[string]string{
		"header": "least_time header", "last": "least_time last_byte inflight", "ewma": "least_time ewma", "two": "random two least_time=header",
	}
	var groups string
	for name, method := range methods {
		groups += group(name, method, slow, e[0].Addr())
	}
	p := serveStream(t, groups, listeners("header", "last", "ewma", "two"))
	for name, method := range methods {
		t.Run(method, func(t *testing.T) {
			got := e.names(p, 20, name)
			if n := strings.Count(got, "-"); n > 3 {
				t.Errorf("%d of 20 at the slow server", n)
			}
		})
	}
}

// TestStreamKeysStayWithTheirServers: what the keys reach is compared with HTTP in
// TestAKeyReachesTheSameServerOverHTTPAndOverStream.
func TestStreamKeysStayWithTheirServers(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 5)
	p := serveStream(t, group("ring", append(e.addrs(), "hash {stream.proxy_protocol_addr} consistent")...)+
		group("bounded", append(e.addrs(), "hash {stream.remote_addr} consistent balance_factor=1.25")...)+
		group("less", append(e[:4].addrs(), e[4].Addr()+" down", "hash {stream.proxy_protocol_addr} consistent")...), `
		server `+front("ring")+` {
			proxy_protocol require
			proxy_pass ring
		}
		server `+front("bounded")+` {
			proxy_pass bounded
		}
		server `+front("less")+` {
			proxy_protocol require
			proxy_pass less
		}`)
	at := func(listener string, i int) string {
		s := p.tcp(listener)
		defer s.Close()
		s.say(fmt.Sprintf("PROXY TCP4 198.51.100.%d 192.0.2.9 4567 80\r\nx\n", i))
		return s.line()
	}
	reached, moved := map[string]bool{}, 0
	for i := range 60 {
		who := at("ring", i)
		reached[who] = true
		if again := at("ring", i); again != who {
			t.Errorf("key %d: %s, then %s", i, who, again)
		}
		switch less := at("less", i); {
		case who == fmt.Sprintf("%d X", e[4].Port()):
			moved++
		case less != who:
			t.Errorf("key %d moved from %s to %s, which another server's end is no reason for", i, who, less)
		}
	}
	if len(reached) != 5 || moved == 0 {
		t.Errorf("60 keys reach %v", reached)
	}
	// One key, and no server takes more than a quarter above the mean.
	loads := map[string]int{}
	for range 5 {
		loads[p.tcp("bounded").ask("x")]++
	}
	if most := slices.Max(slices.Collect(maps.Values(loads))); most > 2 || len(loads) < 4 {
		t.Errorf("five sessions of one key with bounded loads: %v", loads)
	}
}

func TestStreamIPHashBindsClientsAsHTTPDoes(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	lines := []string{b[0].Addr(), b[1].Addr() + " weight=2", b[2].Addr(), "ip_hash"}
	p := serve(t, "\tservers {\n\t\ttrusted_proxies static 127.0.0.0/8\n\t}\n"+group("app", lines...)+`
	stream {
		server `+front("tcp")+` {
			proxy_protocol require
			realip 127.0.0.0/8
			proxy_pass app
		}
	}
`, "\tproxy_pass app")
	reached := map[string]bool{}
	for i := range 30 {
		client := fmt.Sprintf("198.51.%d.7", i)
		web := p.get("/", "X-Forwarded-For: "+client).Text()
		s := p.tcp("tcp")
		s.say("PROXY TCP4 " + client + " 192.0.2.9 4567 80\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		answer := s.rest()
		if got := answer[strings.LastIndex(answer, "\n")+1:]; got != web {
			t.Errorf("%s reaches %s over HTTP and %q over stream", client, web, got)
		}
		reached[web] = true
	}
	if len(reached) != 3 {
		t.Errorf("30 clients reach only %v", reached)
	}
}

func TestStreamMaxUnavailableKeepsAPartOfTheGroup(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 3)
	p := serveStream(t, group("app", append(e.addrs(), "max_unavailable 67")...), listeners("app"))
	for _, l := range e {
		l.Stop()
	}
	if got, want := e.names(p, 5, "app"), repeat("-", 5); got != want {
		t.Errorf("answers %s, want none", got)
	}
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

func TestStreamInPanicFailedServersAreUsedToo(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 2)
	p := serveStream(t, group("app", e[0].Addr()+" fail_timeout=1h", e[1].Addr(), "panic 60"), listeners("app"))
	e[0].Stop()
	if got, want := e.names(p, 2, "app"), "b b"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
	p.WaitLog(t, "too few servers are up: failed ones are used too", map[string]any{"group": "app", "server": e[0].Addr()})
	e[0].Restart()
	if got := e.names(p, 6, "app"); !strings.Contains(got, "a") || !strings.Contains(got, "b") {
		t.Errorf("answers %s, want both servers", got)
	}
}

func TestStreamARetryBudgetLeavesOneTry(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 1)
	dead := testnet.RefusedAddr(t)
	p := serveStream(t, group("none", dead+" max_fails=0", e[0].Addr(), "retry_budget 20 min=0")+
		group("three", dead+" max_fails=0", e[0].Addr(), "retry_budget 20"), listeners("none", "three"))
	for name, want := range map[string]string{"none": "- a - a", "three": "a a a a"} {
		if got := e.names(p, 4, name); got != want {
			t.Errorf("%s: answers %s, want %s", name, got, want)
		}
	}
}

func TestStreamARandomStartBeginsAnywhereInTheCycle(t *testing.T) {
	t.Parallel()
	e := newLineServers(t, 2)
	var groups string
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprint("g", i))
		groups += group(names[i], append(e.addrs(), "random_start")...)
	}
	p := serveStream(t, groups, listeners(names...))
	first := map[string]int{}
	for _, name := range names {
		first[e.names(p, 1, name)]++
	}
	if first["a"]+first["b"] != 40 || first["a"] < 5 || first["b"] < 5 {
		t.Errorf("first answers %v, want both", first)
	}
}
