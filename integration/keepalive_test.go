// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// ports are the client ports that the backend has seen, as letters in order of
// appearance: p q p.
func ports(b *testnet.Backend) string {
	letters := map[int]string{}
	out := ""
	for _, r := range b.Requests() {
		if letters[r.ClientPort] == "" {
			letters[r.ClientPort] = string(rune('p' + len(letters)))
		}
		out += letters[r.ClientPort]
	}
	return out
}

// CASES 32 and 33 are among these, with more requests.
func TestConnectionsToTheBackendAreKeptAsNginxKeepsThem(t *testing.T) {
	t.Parallel()
	http10 := testnet.Answer{Raw: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"}
	closes := testnet.Answer{Header: []string{"Connection: close"}, Body: "ok"}
	cases := []struct {
		name, keepalive string
		answer          testnet.Answer
		targets         string // A and B are routes
		want            string
	}{
		{"by default one route has one connection", "", named("ok"), "AAA", "ppp"},
		{"keepalive off", "keepalive off", named("ok"), "AAA", "pqr"},
		{"an HTTP/1.0 backend", "", http10, "AAA", "pqr"},
		{"a backend that says close", "", closes, "AAA", "pqr"},
		{"by default each route has its own", "", named("ok"), "ABA", "pqp"},
		{"keepalive 8 is shared by routes", "keepalive 8", named("ok"), "ABA", "ppp"},
		{"keepalive 8 local is not", "keepalive 8 local", named("ok"), "ABA", "pqp"},
		{"default, 10 requests (CASES 32)", "", named("ok"), "AAAAAAAAAA", "pppppppppp"},
		{"off, 10 requests (CASES 32)", "keepalive off", named("ok"), "AAAAAAAAAA", "pqrstuvwxy"},
		{"default, in turn (CASES 33)", "", named("ok"), "ABAB", "pqpq"},
		{"keepalive 32, in turn (CASES 33)", "keepalive 32", named("ok"), "ABAB", "pppp"},
		{"keepalive 32 local, in turn (CASES 33)", "keepalive 32 local", named("ok"), "ABAB", "pqpq"},
		{"keepalive_requests 3 (CASES 35)", "keepalive_requests 3", named("ok"), "AAAAAAAAA", "pppqqqrrr"},
	}
	groups, routes := "", ""
	servers := make([]*testnet.Backend, len(cases))
	for i, c := range cases {
		servers[i] = testnet.NewBackend(t, c.answer)
		groups += group(fmt.Sprintf("g%d", i), servers[i].Addr(), c.keepalive)
		routes += fmt.Sprintf("\tproxy_pass /A%d g%d\n\tproxy_pass /B%d g%d\n", i, i, i, i)
	}
	p := serve(t, groups, routes)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, route := range c.targets {
				if res := p.get(fmt.Sprintf("/%c%d", route, i)); res.Status != 200 {
					t.Fatalf("status %d", res.Status)
				}
				p.waitConns(0)
			}
			if got := ports(servers[i]); got != c.want {
				t.Errorf("ports %s, want %s", got, c.want)
			}
		})
	}
}

// CASES 34.
func TestABackendThatClosesIdleConnectionsFailsNoRequest(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	for i := range 5 {
		for _, method := range []string{"GET", "POST"} {
			if res := testnet.Do(t, method, p.URL("front")+"/", nil, nil); res.Status != 200 {
				t.Errorf("%s after %d closes: status %d, want 200", method, i, res.Status)
			}
			b.CloseConns()
			testnet.Eventually(t, 5*time.Second, "the connection is closed", func() bool { open, _ := b.Conns(); return open == 0 })
		}
	}
	if n := len(b.Requests()); n != 10 {
		t.Errorf("the backend got %d requests, want 10", n)
	}
	if s := p.servers("app")[0].State; s.Failures != 0 {
		t.Errorf("%d failures, want none", s.Failures)
	}
}

// CASES 34: the close crosses the request on the wire.
func TestACloseThatCrossesTheRequestRepeatsAGetAndNotAPost(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named(""))
	var crossed atomic.Bool
	b.Script(func(r testnet.Request) testnet.Answer {
		if r.Target() == "/cross" && crossed.CompareAndSwap(false, true) {
			return testnet.CloseUnanswered
		}
		return named("ok")
	})
	p := serve(t, group("app", b.Addr())+group("fail", b.Addr(), "keepalive_stale fail"), `
	@fail header X-Group fail
	proxy_pass @fail fail
	proxy_pass app`)
	for _, c := range []struct {
		method, group string
		status, seen  int
	}{
		{"GET", "app", 200, 2},
		{"POST", "app", 502, 1},
		// nginx to the letter: a single server is asked again all the same.
		{"GET", "fail", 200, 2},
		{"POST", "fail", 502, 1},
	} {
		header := "X-Group: " + c.group
		if res := p.get("/warm", header); res.Status != 200 {
			t.Fatalf("warming up: status %d", res.Status)
		}
		p.waitConns(0)
		b.Forget()
		crossed.Store(false)
		res := testnet.Do(t, c.method, p.URL("front")+"/cross", []string{header}, nil)
		if n := len(b.Requests()); res.Status != c.status || n != c.seen {
			t.Errorf("%s %s: status %d, seen %d times; want %d, %d", c.method, c.group, res.Status, n, c.status, c.seen)
		}
	}
}

// CASES 35.
func TestAConnectionOlderThanKeepaliveTimeIsNotKept(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("app", b.Addr(), "keepalive_time 1s"), "\tproxy_pass app")
	p.get("/")
	began := time.Now()
	p.get("/")
	testnet.Eventually(t, 5*time.Second, "keepalive_time is over", func() bool { return time.Since(began) > 1100*time.Millisecond })
	p.get("/") // one more on the old connection
	p.get("/")
	if got := ports(b); got != "pppq" {
		t.Errorf("ports %s, want pppq", got)
	}
}

func TestIdleConnectionsAreClosedAfterKeepaliveTimeoutAndAtTheEndOfTheGroup(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("short", b.Addr(), "keepalive_timeout 1s")+group("kept", b.Addr(), "keepalive 8"),
		"\tproxy_pass /short short\n\tproxy_pass /kept kept")
	open := func(n int) func() bool { return func() bool { o, _ := b.Conns(); return o == n } }
	p.get("/short")
	p.get("/kept")
	testnet.Eventually(t, 5*time.Second, "two idle connections", open(2))
	testnet.Eventually(t, 5*time.Second, "one after keepalive_timeout", open(1))
	p.MustReload(config("", "\trespond gone"), nil)
	testnet.Eventually(t, 10*time.Second, "none once the group is gone", open(0))
}

func TestKeepaliveOfAGroupThatAHandlerDoesNotDoIsWarnedOf(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	var groups string
	for _, name := range []string{"h2c", "h2", "http", "bare", "list", "proxy", "used", "off"} {
		groups += group(name, b.Addr(), "keepalive 8")
	}
	p := serve(t, groups+group("silent", b.Addr()), `
	proxy_pass /h2c h2c://h2c
	proxy_pass /h2 https://h2 {
		http_version 2
	}
	reverse_proxy /http {
		lb_policy upstream http
	}
	reverse_proxy /bare {
		lb_policy upstream bare
		transport upstream_keepalive
	}
	reverse_proxy /list {
		dynamic upstream list
	}
	proxy_pass /proxy proxy {
		proxy_protocol v1
	}
	proxy_pass /off off {
		keepalive off
	}
	proxy_pass /silent h2c://silent
	proxy_pass used`)
	got := map[any]any{}
	for _, l := range p.logs("what the group says of keepalive does nothing in a handler", "", 6) {
		got[l.Fields["group"]] = l.Fields["because_of"]
	}
	want := map[any]any{
		"h2c": "transport http", "h2": "transport http", "http": "transport http without next_upstream",
		"bare": "transport upstream_keepalive without next_upstream", "list": "dynamic upstream", "proxy": "proxy_protocol",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings of groups (-want +got):\n%s", diff)
	}
}
