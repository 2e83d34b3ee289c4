// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func TestMain(m *testing.M) { Main(m) }

const proxyConfig = `
{
	debug
	auto_https off
}
http://127.0.0.1:{{port "front"}} {
	reverse_proxy {{.}}
}
`

func TestCaddyProxiesToABackend(t *testing.T) {
	b := NewBackend(t, Answer{Body: "hello\n", Header: []string{"X-Backend: one"}})
	c := StartCaddy(t, proxyConfig, b.Addr())

	res := Get(t, c.URL("front")+"/a?b=c", "X-Test: yes")
	if res.Status != 200 || res.Text() != "hello" || res.Get("x-backend") != "one" {
		t.Errorf("response = %+v, want 200 with the backend's header and body", res)
	}
	got := b.WaitRequests(1)[0]
	if got.Line != "GET /a?b=c HTTP/1.1" || got.Get("X-Test") != "yes" || got.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("backend saw %+v", got)
	}
	c.StopGracefully(10 * time.Second)
}

func TestCaddyRunsJSON(t *testing.T) {
	c := StartCaddy(t, `{"apps": {"http": {"servers": {"s": {
		"listen": ["{{addr "front"}}"],
		"routes": [{"handle": [{"handler": "static_response", "body": "json"}]}]
	}}}}}`, nil)
	if res := Get(t, c.URL("front")); res.Text() != "json" {
		t.Errorf("response = %+v, want the body json", res)
	}
}

func TestLogLinesAreFoundByFields(t *testing.T) {
	refused := RefusedAddr(t)
	c := StartCaddy(t, proxyConfig, refused)
	if res := Get(t, c.URL("front")); res.Status != http.StatusBadGateway {
		t.Errorf("status = %d, want 502 from a refused backend", res.Status)
	}
	l := c.WaitLog(t, "selected upstream", map[string]any{"dial": refused, "total_upstreams": 1})
	if l.Fields["level"] != "debug" {
		t.Errorf("level = %v, want debug", l.Fields["level"])
	}
	if got := len(c.Logs("selected upstream")); got != 1 {
		t.Errorf("%d lines, want 1", got)
	}
	if l.Has(map[string]any{"total_upstreams": 2}) {
		t.Error("Has reports a value that is not there")
	}
}

func TestReloadKeepsPortsAndReturnsTheErrorText(t *testing.T) {
	one, two := NewBackend(t, Answer{Body: "one"}), NewBackend(t, Answer{Body: "two"})
	c := StartCaddy(t, proxyConfig, one.Addr())
	before := c.Addr("front")

	c.MustReload(proxyConfig, two.Addr())
	if res := Get(t, c.URL("front")); res.Text() != "two" || c.Addr("front") != before {
		t.Errorf("after the reload %q at %s, want two at %s", res.Text(), c.Addr("front"), before)
	}
	err := c.Reload("http://127.0.0.1:{{port \"front\"}} {\n\tno_such_thing\n}\n", nil)
	if err == nil || !strings.Contains(err.Error(), "unrecognized directive: no_such_thing") {
		t.Errorf("Reload = %v, want the adapter's error", err)
	}
	err = c.Reload(`{"apps": {"http": {"servers": {"s": {"listen": ["bad::address::"]}}}}}`, nil)
	if err == nil || !strings.Contains(err.Error(), "loading") {
		t.Errorf("Reload = %v, want the loader's error", err)
	}
	if res := Get(t, c.URL("front")); res.Text() != "two" {
		t.Errorf("after failed reloads %q, want two", res.Text())
	}
}

func TestNothingDialledAfterAReloadIsReset(t *testing.T) {
	const config = "http://127.0.0.1:{{port \"front\"}} {\n\trespond {{.}}\n}\n"
	c := StartCaddy(t, config, 0)
	var visitors sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer visitors.Wait()
	defer stop()
	for range 32 { // a server without connections ends sooner
		visitors.Go(func() {
			for ctx.Err() == nil {
				b := Browser{Addr: c.Addr("front")}
				_, _ = b.Get("/")
				b.Close()
			}
		})
	}
	for i := range 30 {
		c.MustReload(config, i+1)
		var clients sync.WaitGroup
		for range 16 {
			clients.Go(func() {
				b, err := Dial(c.Addr("front"))
				if err != nil {
					t.Error(err)
					return
				}
				defer b.Close()
				res, err := b.Do("GET", "/", nil, nil)
				if want := strconv.Itoa(i + 1); err != nil || res.Text() != want {
					t.Errorf("answer %q, %v, want %s", res.Text(), err, want)
				}
			})
		}
		clients.Wait()
	}
}

func TestAConfigurationThatDoesNotStartSaysWhy(t *testing.T) {
	_, err := TryCaddy(t, "{\n\tno_such_option\n}\n", nil)
	if err == nil || !strings.Contains(err.Error(), "unrecognized global option: no_such_option") {
		t.Errorf("TryCaddy = %v, want the unknown option named", err)
	}
}

func TestATakenPortIsTriedAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = TryCaddy(t, "http://127.0.0.1:{{.}} {\n\trespond ok\n}\n", taken.Addr().(*net.TCPAddr).Port)
	if err == nil || !portTaken(err.Error(), nil) {
		t.Fatalf("TryCaddy = %v, want a port that is taken", err)
	}

	// A port that somebody takes between choice and use is given up for another.
	var ports []string
	var thief net.Listener
	c, err := tryCaddy(t, "http://127.0.0.1:{{port \"front\"}} {\n\trespond ok\n}\n", nil, func(text string) {
		_, rest, _ := strings.Cut(text, "127.0.0.1:")
		port, _, _ := strings.Cut(rest, " ")
		ports = append(ports, port)
		if len(ports) == 1 {
			if thief, err = net.Listen("tcp", "127.0.0.1:"+port); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { thief.Close() })
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(ports) != 2 || ports[0] == ports[1] {
		t.Errorf("ports tried: %v, want two different ones", ports)
	}
	if res := Get(t, c.URL("front")); res.Text() != "ok" {
		t.Errorf("response = %+v, want ok", res)
	}
}

func TestUsageReturnsToWhereItWas(t *testing.T) {
	release := make(chan struct{})
	b := NewBackend(t, Answer{Body: "late", Hold: release})
	c := StartCaddy(t, `
		http://127.0.0.1:{{port "front"}} {
			reverse_proxy {{.}} {
				transport http {
					keepalive off
				}
			}
		}`, b.Addr())
	base := c.Usage()

	var clients []*Client
	for range 20 {
		cl, err := Dial(c.Addr("front"))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := cl.Send("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, cl)
	}
	Eventually(t, 10*time.Second, "20 requests in flight", func() bool { n, _ := b.InFlight(); return n == 20 })
	u, _, _, err := c.usage()
	if err != nil {
		t.Fatal(err)
	}
	if u.Goroutines < base.Goroutines+20 || u.Descriptors < base.Descriptors+40 {
		t.Errorf("with 20 requests in flight %+v, want 20 goroutines and 40 descriptors above %+v", u, base)
	}
	v := &verdict{TB: t}
	watched := *c.Process
	watched.t = v
	(&Caddy{Process: &watched, admin: c.admin, ports: c.ports}).AssertReturnsTo(base, 50*time.Millisecond)
	if v.how != "error" {
		t.Errorf("with 20 requests in flight the assertion ends with %q, want an error", v.how)
	}
	close(release)
	for _, cl := range clients {
		if res, err := cl.Receive("GET"); err != nil || res.Text() != "late" {
			t.Errorf("response = %q, %v, want late", res.Text(), err)
		}
	}
	c.AssertReturnsTo(base, 10*time.Second)
}

func TestCommandReturnsOutputAndExitStatus(t *testing.T) {
	out, _, err := Command(t, "list-modules")
	if err != nil || !strings.Contains(out, "http.handlers.reverse_proxy") {
		t.Errorf("list-modules: %v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte("{\n\tnonsense\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := Command(t, "adapt", "--config", file)
	if err == nil || !strings.Contains(stderr, "nonsense") {
		t.Errorf("adapt of nonsense: %v\n%s", err, stderr)
	}
}

func TestKillEndsCaddyAtOnce(t *testing.T) {
	c := StartCaddy(t, "http://127.0.0.1:{{port \"front\"}} {\n\trespond ok\n}\n", nil)
	c.Kill()
	if err := c.Wait(time.Second); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Wait = %v, want killed", err)
	}
	if accepts("tcp", c.Addr("front")) {
		t.Error("the port still accepts connections")
	}
}
