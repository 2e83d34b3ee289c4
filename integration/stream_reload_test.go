// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// Ten reloads under 500 open sessions, 100 running flows of datagrams and
// steady new connections: none lost, none moved, none reset.
func TestStreamReloadsLoseAndMoveNothing(t *testing.T) {
	const sessions, flows, reloads = 500, 100, 10
	a, b := testnet.NewLines(t, ""), testnet.NewLines(t, "")
	echo := testnet.NewUDP(t, func(d testnet.Datagram) [][]byte { return [][]byte{fmt.Appendf(nil, "%d", d.From.Port)} })
	udp := fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t))
	config := func(i int) string {
		return streamConfig(group("g", a.Addr(), b.Addr()), fmt.Sprintf(`
		server %s {
			set generation %d
			proxy_pass g
		}
		server udp/%s {
			set generation %d
			proxy_pass %s
		}`, front("front"), i, udp, i, echo.Addr()))
	}
	p := start(t, config(0))
	p.tcp("front").ask("warm")
	base := p.Usage()
	base.Descriptors += pipes

	open500 := make([]*session, sessions)
	for i := range open500 {
		open500[i] = p.tcp("front")
		open500[i].ask("first")
	}
	clients, ports := make([]*session, flows), make([]string, flows)
	for i := range clients {
		clients[i] = open(t, "udp", udp)
		ports[i] = string(clients[i].exchange([]byte("x")))
	}
	var stop atomic.Bool
	var made atomic.Int64
	var wg sync.WaitGroup
	var problems sync.Map
	for range 4 { // steady new connections
		wg.Go(func() {
			for !stop.Load() {
				if err := echoOnce(p.Addr("front")); err != nil {
					problems.Store(err.Error(), true)
				}
				made.Add(1)
			}
		})
	}
	for i := 1; i <= reloads; i++ {
		p.MustReload(config(i), nil)
		for j, c := range clients {
			if got := string(c.exchange([]byte("x"))); got != ports[j] {
				t.Errorf("reload %d: flow %d came from port %s, now from %s", i, j, ports[j], got)
			}
		}
		for j, s := range open500 {
			s.say(fmt.Sprintf("reload %d\n", i))
			if got := s.line(); len(got) < 8 {
				t.Errorf("reload %d: session %d got %q", i, j, got)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	problems.Range(func(k, _ any) bool { t.Errorf("a new connection: %v", k); return true })
	t.Logf("%d new connections", made.Load())
	for _, s := range append(open500, clients...) {
		s.Close()
	}
	p.MustReload(streamConfig(group("g", a.Addr(), b.Addr()), "server "+front("front")+" {\nproxy_pass g\n}\n"), nil)
	p.AssertReturnsTo(base, 30*time.Second)
}

func echoOnce(addr string) error {
	c, err := net.DialTimeout("tcp", addr, 20*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 100))
	return err
}

// Case 41.
func TestStreamIdleSessionsOutliveReloadsAndEndWithTheProcess(t *testing.T) {
	b := testnet.NewLines(t, "")
	servers := func(top string) string {
		return "{\ndebug\npersist_config off\ngrace_period 2s\nstream {\n" + top + "\nserver " + front("front") + " {\nproxy_pass " + b.Addr() + "\naccess_log\n}\n}\n}\n"
	}
	p := start(t, servers(""))
	s := p.tcp("front")
	s.ask("hello")
	began := time.Now()
	p.MustReload(servers("shutdown_timeout 1s"), nil)
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("a reload took %v with a session open", d)
	}
	if got, want := s.ask("still"), fmt.Sprintf("%d STILL", b.Port()); got != want {
		t.Errorf("after a reload: %q, want %q", got, want)
	}
	began = time.Now()
	p.StopGracefully(5 * time.Second)
	if d := time.Since(began); d < 900*time.Millisecond || d > 3*time.Second {
		t.Errorf("the stop took %v, want the timeout of 1 s and a moment", d)
	}
	if l := p.ended(s); !l.Has(map[string]any{"status": 200}) {
		t.Errorf("the session: %v", l.Fields)
	}
}

func TestStreamShutdownTimeoutEndsSessionsAfterAReload(t *testing.T) {
	b := testnet.NewLines(t, "")
	udp := fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t))
	echo := testnet.NewUDP(t, nil)
	servers := func(i int) string {
		return streamConfig("", fmt.Sprintf("shutdown_timeout 500ms\nserver %s {\nset n %d\nproxy_pass %s\naccess_log\n}\nserver udp/%s {\nproxy_pass %s\naccess_log\n}",
			front("front"), i, b.Addr(), udp, echo.Addr()))
	}
	p := start(t, servers(0))
	old, flow := p.tcp("front"), open(t, "udp", udp)
	old.ask("hello")
	flow.exchange([]byte("x"))
	p.MustReload(servers(1), nil)
	fresh := p.tcp("front")
	fresh.ask("hello")
	old.ask("still")
	if got := old.rest(); got != "" {
		t.Errorf("the old session got %q", got)
	}
	p.ended(old)
	p.ended(flow)
	fresh.ask("still")
}

// Clients of a server that dies see the end of their session and nothing else;
// new sessions find the other.
func TestStreamServerKilledUnderLoad(t *testing.T) {
	a, b := testnet.NewLines(t, ""), testnet.NewLines(t, "")
	p := serveStream(t, group("g", a.Addr(), b.Addr()), `
		server `+front("front")+` {
			proxy_pass g
		}`)
	base := p.Usage()
	base.Descriptors += pipes
	var stop atomic.Bool
	var ended, answered, refused atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for !stop.Load() {
				c, err := net.DialTimeout("tcp", p.Addr("front"), 20*time.Second)
				if err != nil {
					refused.Add(1)
					continue
				}
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				for range 50 {
					if _, err = c.Write([]byte("hello\n")); err == nil {
						_, err = c.Read(make([]byte, 100))
					}
					if err != nil {
						if !testnet.Broken(err) {
							t.Errorf("a session: %v", err)
						}
						ended.Add(1)
						break
					}
					answered.Add(1)
				}
				c.Close()
			}
		})
	}
	wait := func(n int64) {
		testnet.Eventually(t, 20*time.Second, "answers", func() bool { return answered.Load() >= n })
	}
	wait(1000)
	a.Stop()
	at := answered.Load()
	wait(at + 2000)
	stop.Store(true)
	wg.Wait()
	if refused.Load() > 0 || ended.Load() > 40 {
		t.Errorf("%d connections were refused and %d sessions ended, want none and at most those of the dead server", refused.Load(), ended.Load())
	}
	p.quiet(base)
}

func TestStreamSessionsOfAServerThatIsTakenOut(t *testing.T) {
	a, b := testnet.NewLines(t, ""), testnet.NewLines(t, "")
	udp := fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t))
	echo := testnet.NewUDP(t, nil)
	p := serveStream(t, group("g", a.Addr()+" id=a", b.Addr()+" id=b")+group("u", echo.Addr()+" id=u"), `
		server `+front("close")+` {
			proxy_pass g {
				on_server_down close
			}
			access_log
		}
		server `+front("keep")+` {
			proxy_pass g
		}
		server udp/`+udp+` {
			proxy_pass u {
				on_server_down close
			}
			access_log
		}`)
	change := func(method, path, body string) {
		t.Helper()
		status, answer, err := p.Admin(method, path, []byte(body), "Content-Type", "application/json")
		if err != nil || status/100 != 2 {
			t.Fatalf("%s %s: %d %s %v", method, path, status, answer, err)
		}
	}
	var onA, onB *session
	for range 2 { // in turn
		s := p.tcp("close")
		if s.ask("hello") == fmt.Sprintf("%d HELLO", a.Port()) {
			onA = s
		} else {
			onB = s
		}
	}
	kept := p.tcp("keep")
	kept.ask("hello") // on a
	_ = p.tcp("keep").ask("hello")
	flow := open(t, "udp", udp)
	flow.exchange([]byte("hello"))
	p.waitConns(5)

	change("PATCH", "/upstream/groups/g/servers/a", `{"drain": true}`)
	onA.ask("drained")
	change("PATCH", "/upstream/groups/g/servers/a", `{"drain": false, "down": true}`)
	if got := onA.rest(); got != "" {
		t.Errorf("the session of a server set down got %q", got)
	}
	p.ended(onA)
	kept.ask("kept")
	onB.ask("still")
	change("DELETE", "/upstream/groups/g/servers/b", "")
	if got := onB.rest(); got != "" {
		t.Errorf("the session of a removed server got %q", got)
	}
	change("PATCH", "/upstream/groups/u/servers/u", `{"down": true}`)
	p.ended(flow)
	p.tcp("close").rest() // nobody is left
}
