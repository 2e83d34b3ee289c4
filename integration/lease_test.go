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
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func init() {
	caddy.RegisterModule(panics{})
	httpcaddyfile.RegisterHandlerDirective("test_panic", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return panics{OnWrite: h.NextArg()}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("test_panic", httpcaddyfile.Before, "handle")
}

// panics is a handler that panics: at once, or when the response is written.
type panics struct {
	OnWrite bool `json:"on_write,omitempty"`
}

func (panics) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_panic", New: func() caddy.Module { return new(panics) }}
}

func (p panics) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !p.OnWrite {
		panic("a handler's fault")
	}
	return next.ServeHTTP(panicWriter{w}, r)
}

type panicWriter struct{ http.ResponseWriter }

func (panicWriter) Write([]byte) (int, error) { panic("a writer's fault") }

// twoKinds serves group app under / over our transports and, under /seen/, a
// group of the same servers over Caddy's own, and calls test for both.
func twoKinds(t *testing.T, addr, options string, test func(t *testing.T, p *proxy, group, prefix string)) {
	t.Helper()
	p := serve(t, group("app", addr, testnet.RefusedAddr(t)+" backup")+group("seen", addr, testnet.RefusedAddr(t)+" backup"), `
	handle_path /seen/* {
		reverse_proxy {
			lb_policy upstream seen
		}
	}
	handle {
		proxy_pass app `+options+`
	}`)
	for group, prefix := range map[string]string{"app": "", "seen": "/seen"} {
		t.Run(group, func(t *testing.T) {
			test(t, &proxy{Caddy: p.Caddy, t: t}, group, prefix)
			p.waitConns(0)
			if s := p.servers(group)[0].State; s.State != "up" || s.Failures != 0 || s.Picks == 0 {
				t.Errorf("state %+v, want up without failures, and picked", s)
			}
		})
	}
}

func TestAClientThatLeavesWhileWaitingGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Silent)
	twoKinds(t, b.Addr(), "", func(t *testing.T, p *proxy, group, prefix string) {
		c := p.dial()
		if err := c.Send("GET " + prefix + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		p.waitConns(1)
		c.Close()
	})
}

// endless answers every request with a body that does not end: it trickles, or
// stops after its first bytes.
func endless(t *testing.T) *testnet.Server {
	t.Helper()
	return testnet.NewTCP(t, func(c net.Conn, _ int) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nbegin")
		for strings.HasSuffix(req.URL.Path, "/trickle") && err == nil {
			_, err = c.Write(make([]byte, 1<<14))
		}
		_, _ = io.Copy(io.Discard, c)
	})
}

func TestAClientThatLeavesWhileReadingGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	b := endless(t)
	twoKinds(t, b.Addr(), "{\n\t\t\tflush_interval -1\n\t\t}", func(t *testing.T, p *proxy, group, prefix string) {
		for _, target := range []string{"/trickle", "/stall"} {
			c := p.dial()
			if err := c.Send("GET " + prefix + target + " HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if target == "/trickle" {
				if _, err := io.CopyN(io.Discard, c.Reader(), 1<<16); err != nil {
					t.Fatal(err)
				}
			}
			p.waitConns(1)
			c.Close()
			p.waitConns(0)
		}
	})
	testnet.Eventually(t, 5*time.Second, "the connections to the backend are closed", func() bool {
		open, _ := b.Conns()
		return open == 0
	})
}

func TestAClientThatLeavesInTheMiddleOfAnUploadGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	twoKinds(t, b.Addr(), "{\n\t\t\trequest_buffering off\n\t\t}", func(t *testing.T, p *proxy, group, prefix string) {
		for _, framing := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
			c := p.dial()
			if err := c.Send("POST " + prefix + "/ HTTP/1.1\r\nHost: x\r\n" + framing + "\r\n\r\n5\r\n01"); err != nil {
				t.Fatal(err)
			}
			p.waitConns(1)
			c.Close()
			p.waitConns(0)
		}
	})
}

func TestABufferedUploadThatBreaksOffAsksNoServer(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	c := p.dial()
	if err := c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	p.access("/")
	if s := p.servers("app")[0].State; s.Picks != 0 || s.Conns != 0 {
		t.Errorf("state %+v, want no pick", s)
	}
	if n := len(b.Requests()); n != 0 {
		t.Errorf("the backend got %d requests, want none", n)
	}
}

func TestAPanicInALaterHandlerGivesTheSlotBack(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Body: strings.Repeat("x", 1<<20)})
	p := serve(t, group("app", b.Addr())+group("seen", b.Addr()), `
	test_panic /write/* on_write
	handle_path /write/app {
		proxy_pass app
	}
	handle_path /write/seen {
		reverse_proxy {
			lb_policy upstream seen
		}
	}
	handle /routes/app {
		proxy_pass app {
			handle_response {
				test_panic
			}
		}
	}
	handle /routes/seen {
		reverse_proxy {
			lb_policy upstream seen
			handle_response {
				test_panic
			}
		}
	}`)
	for _, target := range []string{"/write/app", "/write/seen", "/routes/app", "/routes/seen"} {
		c := p.dial()
		res, err := c.Do("GET", target, nil, nil)
		if err == nil && (res.Status != 500 && res.Status != 502) {
			t.Errorf("%s: status %d, want none, or that of an error", target, res.Status)
		}
		p.waitConns(0)
	}
	for _, g := range []string{"app", "seen"} {
		if s := p.servers(g)[0].State; s.Picks != 2 || s.Failures != 0 {
			t.Errorf("group %s: %+v, want two picks and no failure", g, s)
		}
	}
}

func TestStatus999IsPassedOnAndStatus99IsNoHTTP(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		return testnet.Answer{Raw: "HTTP/1.1 " + strings.TrimPrefix(r.Target(), "/") + " X\r\nContent-Length: 0\r\n\r\n", Then: testnet.Close}
	})
	p := serve(t, group("app", b.Addr())+group("seen", b.Addr()), `
	@seen header X-Group seen
	reverse_proxy @seen {
		lb_policy upstream seen
	}
	proxy_pass app`)
	for _, c := range []struct {
		sent string
		want int
	}{{"999", 999}, {"599", 599}, {"99", 502}, {"099", 502}, {"1000", 502}, {"-20", 502}, {"000", 502}} {
		if res := p.get("/" + c.sent); res.Status != c.want {
			t.Errorf("backend says %s: status %d, want %d", c.sent, res.Status, c.want)
		}
		// What Caddy makes of it over its own transport is Caddy's; the slot is ours.
		cl := p.dial()
		_, _ = cl.Do("GET", "/"+c.sent, []string{"X-Group: seen"}, nil)
		p.waitConns(0)
	}
}

func TestManyClientsThatLeaveAtAnyMomentLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Body: strings.Repeat("x", 1<<16), Delay: 2 * time.Millisecond})
	// Nothing is kept for reuse, so that every descriptor counts.
	p := serve(t, group("app", b.Addr()+" max_conns=50", testnet.RefusedAddr(t), "keepalive off"), "\tproxy_pass app")
	p.get("/")
	base := p.Usage()
	for i := range 150 {
		c, err := testnet.Dial(p.Addr("front"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i%15) * 300 * time.Microsecond) // the moment at which the client leaves
		c.Close()
	}
	p.waitConns(0)
	if f := p.servers("app")[0].State.Failures; f != 0 {
		t.Errorf("%d failures of the live server, want none", f)
	}
	p.AssertReturnsTo(base, 30*time.Second)
}
