// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// hesitant is a backend whose checks wait until the gate opens.
func hesitant(t *testing.T, name string, gate <-chan struct{}) *testnet.Backend {
	t.Helper()
	return testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if r.Target() == "/up" {
			<-gate
		}
		return named(name)
	})
}

// A mandatory check keeps servers out until they have passed: at the start, when
// one is added, and, unless it is persistent, when the group changes.
func TestMandatoryKeepsServersOutUntilTheyHavePassed(t *testing.T) {
	t.Parallel()
	for _, persistent := range []bool{false, true} {
		t.Run(fmt.Sprint("persistent ", persistent), func(t *testing.T) {
			t.Parallel()
			var open [3]chan struct{}
			var b [3]*testnet.Backend
			for i := range b {
				open[i] = make(chan struct{})
				b[i] = hesitant(t, string(rune('a'+i)), open[i])
				t.Cleanup(func() {
					select {
					case <-open[i]:
					default:
						close(open[i])
					}
				})
			}
			check := "health_check uri=/up interval=1s timeout=60s mandatory"
			if persistent {
				check += " persistent"
			}
			text := func(lines ...string) string { return config(group("app", append(lines, check)...), "\tproxy_pass app") }
			a, second := b[0].Addr()+" id=a", b[1].Addr()+" id=b"
			p := start(t, text(a, second))
			p.reloads = true
			if res := p.get("/"); res.Status != 502 {
				t.Errorf("status %d before any check has passed, want 502", res.Status)
			}
			if s := p.checkedServer("a"); s.State == "up" || len(s.Checks) != 1 || s.Checks[0].Reason != "not checked yet" {
				t.Errorf("server a: %+v, want one that is not checked yet", s)
			}
			close(open[0])
			p.waitState("a", "up")
			if got := p.bodies(4, "/"); got != "a a a a" {
				t.Errorf("answers %s while b is not checked, want those of a", got)
			}
			close(open[1])
			p.waitState("b", "up")
			if got := sortedFields(p.bodies(4, "/")); got != "a a b b" {
				t.Errorf("answers %s, want those of both", got)
			}
			p.change(201, "POST", "/upstream/groups/app/servers", fmt.Sprintf(`{"id":"c","address":%q}`, b[2].Addr()))
			if got := sortedFields(p.bodies(4, "/")); got != "a a b b" {
				t.Errorf("answers %s while c, which was added, is not checked, want those of a and b", got)
			}
			close(open[2])
			p.waitState("c", "up")

			// The group changes: a stays, and its checks hang now.
			again := make(chan struct{})
			b[0].Script(func(r testnet.Request) testnet.Answer {
				if r.Target() == "/up" {
					<-again
				}
				return named("a")
			})
			p.MustReload(text(a+" weight=2"), nil)
			got := p.checkedServer("a")
			if persistent && got.State != "up" {
				t.Errorf("state %+v after a reload that changes the group, want up: it is persistent", got)
			}
			if !persistent && (got.State == "up" || len(got.Checks) != 1 || got.Checks[0].Reason != "not checked yet") {
				t.Errorf("state %+v after a reload that changes the group, want not checked yet", got)
			}
			close(again)
			p.waitState("a", "up")
		})
	}
}

func TestTheSameServerInTwoGroupsIsAskedOnceIfTheChecksAreEqual(t *testing.T) {
	t.Parallel()
	var paths [3]atomic.Int64 // requests for /one, /two and /three
	names := []string{"/one", "/two", "/three"}
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		for i, name := range names {
			if r.Target() == name {
				paths[i].Add(1)
			}
		}
		return named("b")
	})
	with := func(name, uri string) string {
		return group(name, b.Addr()+" id=b", "health_check uri="+uri+" interval=1s timeout=30s")
	}
	// /one is asked for by two groups, /two by one, and /three by two whose
	// checks differ.
	p := serve(t, with("app", "/one")+with("a2", "/one")+with("a3", "/two")+with("a4", "/three")+
		group("a5", b.Addr()+" id=b", "health_check uri=/three interval=1s timeout=29s"), "\tproxy_pass app")
	testnet.Eventually(t, 60*time.Second, "ten checks of one group", func() bool { return paths[1].Load() >= 10 })
	one, two, three := paths[0].Load(), paths[1].Load(), paths[2].Load()
	if one > two+two/2 {
		t.Errorf("two groups with equal checks asked %d times, one group %d times", one, two)
	}
	if three < two+two/2 {
		t.Errorf("two groups whose checks differ asked %d times, one group %d times", three, two)
	}
	b.Script(func(testnet.Request) testnet.Answer { return testnet.Answer{Status: 503} })
	for _, g := range []string{"app", "a2"} {
		testnet.Eventually(t, 30*time.Second, "the verdict in "+g, func() bool { return p.serverOf(g, "b").State.State == "unhealthy" })
	}
}

// What is asked may be another port or address; requests and sessions go to the
// server's own.
func TestThePortAndAddressOfACheckNeverChangeWhereTrafficGoes(t *testing.T) {
	t.Parallel()
	service, other, unlike := testnet.NewBackend(t, named("service")), testnet.NewBackend(t, named("other")), testnet.NewBackend(t, named("unlike"))
	lines := testnet.NewLines(t, "hello\n")
	_, port, err := net.SplitHostPort(other.Addr())
	if err != nil {
		t.Fatal(err)
	}
	groups := group("app", service.Addr()+" id=s", "health_check uri=/up interval=200ms timeout=30s port="+port) +
		group("far", service.Addr()+" id=s", "health_check uri=/up interval=200ms timeout=30s address="+unlike.Addr()) +
		group("lines", lines.Addr()+" id=s", "health_check interval=200ms timeout=30s address="+unlike.Addr())
	p := serve(t, groups+"\tstream {\n\t\tserver "+front("s")+" {\n\t\t\tproxy_pass lines\n\t\t}\n\t}\n", "\tproxy_pass /far far\n\tproxy_pass app")
	asked := func(b *testnet.Backend) int {
		n := 0
		for _, r := range b.Requests() {
			if r.Get("User-Agent") != "caddy-upstream (health check)" {
				t.Errorf("a request for %s to a server that is for checks", r.Target())
			}
			n++
		}
		return n
	}
	testnet.Eventually(t, 30*time.Second, "checks of both", func() bool { return asked(other) > 2 && asked(unlike) > 2 })
	for range 10 {
		if one, two := p.get("/").Text(), p.get("/far").Text(); one != "service" || two != "service" {
			t.Fatalf("answers of %s and %s, want the service's", one, two)
		}
	}
	s := open(t, "tcp", p.Addr("s"))
	if line, err := s.r.ReadString('\n'); err != nil || strings.TrimSpace(line) != "hello" {
		t.Errorf("over stream: %q, %v", line, err)
	}
	asked(other)
	asked(unlike)
	for _, r := range service.Requests() {
		if r.Target() == "/up" {
			t.Errorf("the service was asked for /up")
		}
	}
	other.Stop()
	testnet.Eventually(t, 30*time.Second, "the verdict on the server", func() bool { return p.serverOf("app", "s").State.State == "unhealthy" })
	if got := p.serverOf("far", "s").State.State; got != "up" {
		t.Errorf("far is %s, want up", got)
	}
}

func sortedFields(text string) string {
	f := strings.Fields(text)
	slices.Sort(f)
	return strings.Join(f, " ")
}
