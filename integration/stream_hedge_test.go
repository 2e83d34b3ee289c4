// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// gatedLines are n backends for lines, over TLS, whose gates are shut.
func gatedLines(t *testing.T, n int) ([]*testnet.Lines, []*gate) {
	t.Helper()
	cert, _, _ := newAuthority(t).issue("127.0.0.1")
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	lines, gates := make([]*testnet.Lines, n), make([]*gate, n)
	for i := range lines {
		gates[i] = newGate()
		lines[i] = testnet.NewLinesOn(t, gates[i].listen(config), "")
	}
	return lines, gates
}

func hedgedStream(t *testing.T, lines []*testnet.Lines, options string) *proxy {
	t.Helper()
	var servers []string
	for _, l := range lines {
		servers = append(servers, l.Addr())
	}
	return serveStream(t, group("app", servers...), `
		server `+front("front")+` {
			proxy_pass app {
				ssl_insecure_skip_verify
				connect_hedge 50ms
				`+options+`
			}
			access_log
		}`)
}

func lineAddrs(lines ...*testnet.Lines) string {
	var out []string
	for _, l := range lines {
		out = append(out, l.Addr())
	}
	return strings.Join(out, ", ")
}

// waitLines waits until n connections to l are open.
func waitLines(t *testing.T, l *testnet.Lines, n int) {
	t.Helper()
	testnet.Eventually(t, 30*time.Second, fmt.Sprintf("%d connections to %s", n, l.Addr()), func() bool {
		open, _ := l.Conns()
		return open == n
	})
}

// reaches checks that a session is with a server and ends it.
func (p *proxy) reaches(s *session, l *testnet.Lines, tried string) {
	p.t.Helper()
	if got, want := s.ask("hello"), fmt.Sprintf("%d HELLO", l.Port()); got != want {
		p.t.Errorf("the answer is %q, want %q", got, want)
	}
	s.Close()
	if got := p.ended(s).Fields["upstream_addr"]; got != tried {
		p.t.Errorf("upstream_addr = %q, want %q", got, tried)
	}
}

func TestStreamTheFasterServerGetsTheSessionAndTheSlowOneIsLeftAlone(t *testing.T) {
	t.Parallel()
	l, gates := gatedLines(t, 2)
	gates[1].open()
	p := hedgedStream(t, l, "")
	p.reaches(p.tcp("front"), l[1], lineAddrs(l...))
	for range 10 {
		p.reaches(p.tcp("front"), l[1], l[1].Addr())
	}
	if s := p.servers("app")[0].State; s.Picks != 1 || s.Conns != 1 {
		t.Errorf("the slow server: %+v, want one pick, still open", s)
	}
	gates[0].open()
	waitLines(t, l[0], 0) // what comes too late is closed
	p.waitConns(0)
	seen := map[string]bool{}
	for range 4 {
		s := p.tcp("front")
		seen[s.ask("hello")] = true
		s.Close()
	}
	if len(seen) != 2 {
		t.Errorf("answers %v, want both servers", seen)
	}
	for _, s := range p.servers("app") {
		if s.State.Failures != 0 {
			t.Errorf("%s: %d failures, want none", s.Address, s.State.Failures)
		}
	}
}

func TestStreamTheSlowServerGetsTheSessionIfItIsThereFirstAfterAll(t *testing.T) {
	t.Parallel()
	l, gates := gatedLines(t, 3)
	p := hedgedStream(t, l, "")
	s := p.tcp("front")
	for _, x := range l {
		waitLines(t, x, 1)
	}
	gates[1].open()
	p.reaches(s, l[1], lineAddrs(l[0], l[2], l[1]))
	if s := p.servers("app"); s[0].State.Conns != 1 || s[2].State.Conns != 1 {
		t.Errorf("servers %+v, want two that are still being connected", s)
	}
	gates[0].open()
	gates[2].open()
	p.waitConns(0)
	for _, x := range l {
		waitLines(t, x, 0)
	}
}

func TestStreamHedgesKeepToTheLimitsOfTries(t *testing.T) {
	t.Parallel()
	for option, n := range map[string]int{"next_upstream_tries 2": 2, "next_upstream_timeout 10ms": 1} {
		l, gates := gatedLines(t, 3)
		gates[2].open()
		p := hedgedStream(t, l, option)
		s := p.tcp("front")
		for _, x := range l[:n] {
			waitLines(t, x, 1)
		}
		time.Sleep(500 * time.Millisecond) // ten delays in which nothing happens
		if _, accepted := l[n].Conns(); accepted != 0 {
			t.Errorf("%s: %d connections to one more server", option, accepted)
		}
		gates[n-1].open()
		p.reaches(s, l[n-1], lineAddrs(l[:n]...))
		gates[0].open()
		p.waitConns(0)
	}
}

func TestStreamAServerThatRefusesLeavesTheSessionToTheSlowOne(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"", "next_upstream off"} {
		l, gates := gatedLines(t, 2)
		p := hedgedStream(t, l, option)
		l[1].Stop()
		s := p.tcp("front")
		p.WaitLog(t, "server temporarily disabled", map[string]any{"server": l[1].Addr()})
		gates[0].open()
		p.reaches(s, l[0], lineAddrs(l[1], l[0]))
		p.waitConns(0)
	}
}

func TestStreamWhenNoneConnectsAllHaveFailed(t *testing.T) {
	t.Parallel()
	l, _ := gatedLines(t, 3)
	p := hedgedStream(t, l, "connect_timeout 1s")
	s := p.tcp("front")
	if got := s.rest(); got != "" {
		t.Errorf("the client got %q", got)
	}
	if line := p.ended(s); !line.Has(map[string]any{"status": 502, "upstream_addr": lineAddrs(l...)}) {
		t.Errorf("the access log says %v", line.Fields)
	}
	for _, s := range p.servers("app") {
		if s.State.Failures != 1 {
			t.Errorf("%s: %d failures, want 1", s.Address, s.State.Failures)
		}
	}
	p.waitConns(0)
}

func TestStreamASlowServerThatNeverConnectsIsDisabledInTheBackground(t *testing.T) {
	t.Parallel()
	l, gates := gatedLines(t, 2)
	gates[1].open()
	p := hedgedStream(t, l, "connect_timeout 1s")
	p.reaches(p.tcp("front"), l[1], lineAddrs(l...))
	p.WaitLog(t, "server temporarily disabled", map[string]any{"server": l[0].Addr()})
	for range 5 {
		p.reaches(p.tcp("front"), l[1], l[1].Addr())
	}
	if s := p.servers("app")[0].State; s.Picks != 1 || s.Failures != 1 {
		t.Errorf("the slow server: %+v, want one pick and one failure", s)
	}
	p.waitConns(0)
}

// TestStreamSessionsThatAreEndedLeaveNoConnectionsBehind: a stop ends sessions
// that are being connected.
func TestStreamSessionsThatAreEndedLeaveNoConnectionsBehind(t *testing.T) {
	t.Parallel()
	l, gates := gatedLines(t, 2)
	p := serveStream(t, group("app", l[0].Addr(), l[1].Addr()), `
		shutdown_timeout 500ms
		server `+front("front")+` {
			proxy_pass app {
				ssl_insecure_skip_verify
				connect_hedge 50ms
			}
		}`)
	base := p.Usage()
	p.tcp("front")
	for _, x := range l {
		waitLines(t, x, 1)
	}
	if err := p.Reload(streamConfig(group("app", l[0].Addr(), l[1].Addr()), "\t\tshutdown_timeout 500ms"), nil); err != nil {
		t.Fatal(err)
	}
	p.quiet(base)
	for i, x := range l {
		gates[i].open()
		waitLines(t, x, 0)
	}
	for _, s := range p.servers("app") {
		if s.State.Failures != 0 {
			t.Errorf("%s: %d failures, want none", s.Address, s.State.Failures)
		}
	}
}
