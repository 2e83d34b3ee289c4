// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// twoWalks is a group that authenticates and one that answers, each with a dead
// first server, so that a walk that took over another's state would show.
func twoWalks(t *testing.T, site string) (p *proxy, auth, app *testnet.Backend, tried string) {
	t.Helper()
	auth = testnet.NewBackend(t, testnet.Answer{Header: []string{"X-User: ann"}, Body: "auth"})
	app = testnet.NewBackend(t, named("app"))
	dead := []string{testnet.RefusedAddr(t), testnet.RefusedAddr(t)}
	p = serve(t, group("auth", dead[0], auth.Addr())+group("app", dead[1], app.Addr()), site)
	return p, auth, app, dead[0] + ", " + auth.Addr() + " : " + dead[1] + ", " + app.Addr()
}

// check sends a GET and a POST and looks at the walks of the first.
func checkWalks(t *testing.T, p *proxy, app *testnet.Backend, tried, names string) {
	t.Helper()
	res := p.get("/")
	if res.Status != 200 || res.Text() != "app" {
		t.Errorf("%d %q, want the app's 200", res.Status, res.Text())
	}
	l := p.access("/")
	if addr := l.Fields["upstream_addr"]; addr != tried {
		t.Errorf("upstream_addr = %q, want %q", addr, tried)
	}
	if status := l.Fields["upstream_status"]; status != "502, 200 : 502, 200" {
		t.Errorf("upstream_status = %q, want %q", status, "502, 200 : 502, 200")
	}
	if name := l.Fields["upstream_name"]; name != names {
		t.Errorf("upstream_name = %q, want %q", name, names)
	}
	app.Forget()
	if res := p.post("/post", []byte("content")); res.Status != 200 {
		t.Errorf("POST: status %d", res.Status)
	}
	if got := string(app.WaitRequests(1)[0].Body); got != "content" {
		t.Errorf("POST: the app got the body %q, want %q", got, "content")
	}
	p.waitConns(0)
}

func TestForwardAuthAndProxyPassWalkApart(t *testing.T) {
	t.Parallel()
	p, auth, app, tried := twoWalks(t, `
	forward_auth {
		lb_policy upstream auth
		transport next_upstream
		uri /check
		copy_headers X-User
	}
	proxy_pass app`)
	checkWalks(t, p, app, tried, "auth : app")
	if user := app.Requests()[0].Get("X-User"); user != "ann" {
		t.Errorf("X-User = %q, want ann", user)
	}
	auth.SetAnswer(testnet.StatusAnswer(401))
	app.Forget()
	if res := p.get("/denied"); res.Status != 401 || len(app.Requests()) != 0 {
		t.Errorf("denied: status %d, the app got %d requests, want 401 and none", res.Status, len(app.Requests()))
	}
	if addr, _ := p.tries("/denied"); addr != auth.Addr() {
		t.Errorf("denied: tried %q, want %q", addr, auth.Addr())
	}
}

func TestHandleResponseRoutesWalkApart(t *testing.T) {
	t.Parallel()
	p, _, app, tried := twoWalks(t, `
	proxy_pass auth {
		method GET
		rewrite /check
		@good status 2xx
		handle_response @good {
			proxy_pass app
		}
	}`)
	checkWalks(t, p, app, tried, "auth : app")
}

func TestANamedRouteThatRunsTwiceWalksTwice(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if r.Target() == "/second" {
			return named("second")
		}
		return testnet.Answer{Header: []string{"X-Go: on"}, Body: "first"}
	})
	dead := testnet.RefusedAddr(t)
	p := start(t, `
	{
		debug
		upstream app {
			server `+dead+` max_fails=0
			server `+b.Addr()+` weight=2
		}
	}
	&(app) {
		proxy_pass app {
			@more header X-Go on
			handle_response @more {
				rewrite * /second
				invoke app
			}
		}
	}
	http://:{{port "front"}} {
		bind 127.0.0.1
		log
		invoke app
	}`)
	// Weights 1, 2: b a b; the second walk of the first request tries a first.
	res := p.get("/first")
	if res.Status != 200 || res.Text() != "second" {
		t.Errorf("%d %q, want the answer to /second", res.Status, res.Text())
	}
	addr, status := p.tries("/first")
	if want := b.Addr() + " : " + dead + ", " + b.Addr(); addr != want || status != "200 : 502, 200" {
		t.Errorf("tried %q, %q, want %q, %q", addr, status, want, "200 : 502, 200")
	}
	p.waitConns(0)
}

func TestAnErrorRouteThatProxiesWalksApart(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", dead)+group("sorry", b[0].Addr()), `
	proxy_pass app
	handle_errors 502 {
		proxy_pass sorry
	}`)
	if res := p.get("/"); res.Text() != "a" {
		t.Errorf("%d %q, want the error page from a", res.Status, res.Text())
	}
	addr, status := p.tries("/")
	if want := dead + " : " + b[0].Addr(); addr != want || status != "502 : 200" {
		t.Errorf("tried %q, %q, want %q, %q", addr, status, want, "502 : 200")
	}
	p.waitConns(0)
}
