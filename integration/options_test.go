// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestHeaderUpSeesTheServerOfEachTry(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("app", testnet.RefusedAddr(t), b.Addr()), `
	proxy_pass app {
		header_up X-Upstream {upstream_hostport}
		header_up +X-Count 1
	}`)
	p.get("/")
	r := b.WaitRequests(1)[0]
	if got := r.Get("X-Upstream"); got != b.Addr() {
		t.Errorf("X-Upstream = %q, want the second server's %q", got, b.Addr())
	}
	if got := r.Values("X-Count"); len(got) != 1 {
		t.Errorf("X-Count = %q, want one: each try begins anew", got)
	}
	if r.Get("X-Forwarded-For") != "127.0.0.1" || r.Get("Via") == "" {
		t.Errorf("header %v, want what reverse_proxy adds", r.Header)
	}
}

func TestResponseOptionsOfReverseProxyKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		return testnet.Answer{Header: []string{"X-Seen: " + r.Line}, Body: "body"}
	})
	p := serve(t, group("app", b.Addr()), `
	handle /copy {
		proxy_pass app {
			handle_response {
				header X-Mine yes
				copy_response 203
			}
		}
	}
	handle /status {
		proxy_pass app {
			replace_status 299
		}
	}
	handle /buffered {
		proxy_pass app {
			response_buffers 1KiB
			header_down -X-Seen
		}
	}
	handle /changed {
		proxy_pass app {
			method PUT
			rewrite /other?a=b
		}
	}
	handle /dropped {
		proxy_pass app {
			handle_response {
				respond "mine" 200
			}
		}
	}`)
	for target, want := range map[string]struct {
		status int
		body   string
		seen   string
	}{
		"/copy":     {203, "body", ""},
		"/status":   {299, "body", "GET /status HTTP/1.1"},
		"/buffered": {200, "body", ""},
		"/changed":  {200, "body", "PUT /other?a=b HTTP/1.1"},
		"/dropped":  {200, "mine", ""},
	} {
		res := p.get(target)
		if res.Status != want.status || res.Text() != want.body {
			t.Errorf("%s: %d %q, want %d %q", target, res.Status, res.Text(), want.status, want.body)
		}
		if want.seen != "" && res.Get("X-Seen") != want.seen {
			t.Errorf("%s: the backend got %q, want %q", target, res.Get("X-Seen"), want.seen)
		}
		p.waitConns(0)
	}
}

func TestWhatThisMachineCannotDoIs500AndNobodysFailure(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr()), "\tproxy_pass app {\n\t\tbind 192.0.2.1\n\t}")
	if res := p.get("/"); res.Status != 500 {
		t.Errorf("status %d, want 500", res.Status)
	}
	if addr, _ := p.tries("/"); addr != "" {
		t.Errorf("upstream_addr = %q, want none", addr)
	}
	for _, s := range p.servers("app") {
		if s.State.Failures != 0 || s.State.Conns != 0 {
			t.Errorf("%+v, want no failure and nothing in flight", s)
		}
	}
}

// A connection that begins with one client's address must not serve another.
func TestWithProxyProtocolNoClientUsesAnothersConnection(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	b := testnet.NewTCP(t, func(c net.Conn, _ int) {
		r := bufio.NewReader(c)
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			mu.Lock()
			seen = append(seen, strings.TrimSpace(line)+" for "+req.Header.Get("X-Client"))
			mu.Unlock()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	p := serve(t, group("app", b.Addr(), "keepalive 8")+"\tservers {\n\t\ttrusted_proxies static 127.0.0.1/32\n\t}\n", `
	proxy_pass app {
		proxy_protocol v1
	}`)
	clients := []string{"192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.3", "192.0.2.2", "192.0.2.2"}
	for _, client := range clients {
		if res := p.get("/", "X-Forwarded-For: "+client, "X-Client: "+client); res.Status != 200 {
			t.Errorf("client %s: status %d, want 200", client, res.Status)
		}
		p.waitConns(0)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, line := range seen {
		if !strings.HasPrefix(line, "PROXY TCP4 "+clients[i]+" ") || !strings.HasSuffix(line, " for "+clients[i]) {
			t.Errorf("request %d: %q, want both to be %s", i, line, clients[i])
		}
	}
	if len(seen) != len(clients) {
		t.Errorf("%d requests, want %d", len(seen), len(clients))
	}
}

func TestCaddysConfigAPIChangesAServerAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	dead := testnet.RefusedAddr(t)
	p := reloadable(t, group("app", b[0].Addr(), dead+" fail_timeout=60s", b[1].Addr()), "\tproxy_pass app")
	p.bodies(3, "/")
	before := p.servers("app")[1].State
	status, body, err := p.Admin("PATCH", "/config/apps/upstream/groups/app/servers/0/address",
		[]byte(fmt.Sprintf("%q", b[2].Addr())), "Content-Type", "application/json")
	if err != nil || status != 200 {
		t.Fatalf("PATCH: status %d, %v, %s", status, err, body)
	}
	servers := p.servers("app")
	if len(servers) != 3 || servers[0].Address != b[2].Addr() || servers[0].State.Picks != 0 {
		t.Errorf("servers %+v, want a new first one", servers)
	}
	if after := servers[1].State; after.State != "unhealthy" || !after.DownSince.Equal(*before.DownSince) {
		t.Errorf("the dead server is %+v, want as before: %+v", after, before)
	}
	if got := p.bodies(4, "/"); strings.Contains(got, "a") || !strings.Contains(got, "c") {
		t.Errorf("answers %s, want b and c", got)
	}
}
