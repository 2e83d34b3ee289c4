// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// CASES 14.
func TestADrainingServerIsReachedByItsBoundClientsOnly(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr(), "sticky cookie sid"), "\tproxy_pass app")
	bound := "Cookie: sid=" + peer.Digest(b[0].Addr(), "")
	status, answer, err := p.Admin("PATCH", "/upstream/groups/app/servers/"+url.PathEscape(b[0].Addr()),
		[]byte(`{"drain":true}`), "Content-Type", "application/json")
	if err != nil || status != 200 {
		t.Fatalf("drain: %d %s %v", status, answer, err)
	}
	for i := range 10 {
		if got := p.get("/", bound).Text(); got != "a" {
			t.Errorf("bound client, request %d: %s, want a", i, got)
		}
	}
	if got, want := p.bodies(100, "/"), repeat("b", 100); got != want {
		t.Errorf("new clients: %s", got)
	}
	if s := p.servers("app")[0].State; s.State != "draining" || s.Conns != 0 {
		t.Errorf("the server is %+v, want draining", s)
	}
}

// CASES 12.
func TestStickyRouteReachesTheNamedServerWhileItIsUp(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, group("app", b[0].Addr()+" route=one", b[1].Addr()+" route=two", b[2].Addr()+" route=three",
		"sticky route {cookie.route} {query.route}"), "\tproxy_pass app")
	if got, want := p.bodies(100, "/?route=two"), repeat("b", 100); got != want {
		t.Errorf("answers %s", got)
	}
	b[1].Stop()
	if got := p.bodies(4, "/?route=two"); strings.Contains(got, "502") || strings.Contains(got, "b") {
		t.Errorf("while it is down: answers %s, want those of the others", got)
	}
}

func TestTheStickyCookieIsSentOnErrorsToo(t *testing.T) {
	t.Parallel()
	dead := []string{testnet.RefusedAddr(t), testnet.RefusedAddr(t)}
	p := serve(t, group("app", dead[0], dead[1], "sticky cookie sid")+group("down", dead[0]+" down", dead[1]+" down", "sticky cookie sid"),
		"\tproxy_pass /app app\n\tproxy_pass /down down")
	res := p.get("/app")
	if got, want := cookiesOf(res), "sid="+peer.Digest(dead[1], ""); res.Status != 502 || got != want {
		t.Errorf("both refuse: %d with cookies %q, want 502 with that of the last, %q", res.Status, got, want)
	}
	if res := p.get("/down"); res.Status != 502 || cookiesOf(res) != "" {
		t.Errorf("no server was chosen: %d with cookies %q, want 502 without", res.Status, cookiesOf(res))
	}
}

// cookiesOf are the cookies that a response sets.
func cookiesOf(res testnet.Response) string {
	var out []string
	for _, h := range res.Header {
		if strings.EqualFold(h.Name, "Set-Cookie") {
			out = append(out, h.Value)
		}
	}
	return strings.Join(out, " | ")
}

func TestTheStickyCookieStandsBesideTheServersOwnAndNotInInterimResponses(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{
		Raw: "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\nContent-Length: 2\r\n\r\nok",
	})
	p := serve(t, group("app", b.Addr(), "sticky cookie sid secret=s3cret"), `
	proxy_pass /front app
	reverse_proxy /stock {
		lb_policy upstream app
	}`)
	for _, target := range []string{"/front", "/stock"} {
		c := p.dial()
		if err := c.Send("GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		var raw strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := c.Reader().Read(buf)
			raw.Write(buf[:n])
			if err != nil {
				break
			}
		}
		interim, final, ok := strings.Cut(raw.String(), "HTTP/1.1 200")
		if !ok || !strings.Contains(interim, "103") || strings.Contains(interim, "sid=") {
			t.Errorf("%s: before the answer %q, want 103 without a cookie", target, interim)
		}
		for _, want := range []string{"Set-Cookie: own=1", "Set-Cookie: sid=" + peer.Digest(b.Addr(), "s3cret")} {
			if strings.Count(final, want) != 1 {
				t.Errorf("%s: %q has not %q once", target, final, want)
			}
		}
	}
}

func TestWhatWasLearnedIsKeptOverAReload(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	for i, x := range b {
		x.Script(func(r testnet.Request) testnet.Answer {
			a := named(fmt.Sprintf("%c", 'a'+i))
			if r.Target() == "/new" {
				a.Header = []string{"Set-Cookie: session=of-" + a.Body}
			}
			return a
		})
	}
	text := func(n int) (string, string) {
		return group("app", b[0].Addr(), b[1].Addr(), b[2].Addr(),
			"sticky learn create={http.upstream.cookie.session} lookup={http.request.cookie.session} zone=z:1m"), pass(n)
	}
	global, site := text(1)
	p := reloadable(t, global, site)
	if got := p.bodies(3, "/new"); got != "a b c" {
		t.Fatalf("new sessions at %s, want a b c", got)
	}
	check := func(when string) {
		t.Helper()
		for _, name := range []string{"b", "b", "a", "c"} {
			if got := p.get("/", "Cookie: session=of-"+name).Text(); got != name {
				t.Errorf("%s: the session of %s is at %s", when, name, got)
			}
		}
	}
	check("learned")
	global, site = text(2)
	p.MustReload(config(global, site), nil)
	check("after a reload")
}

func TestStreamRefusesAStickyGroup(t *testing.T) {
	t.Parallel()
	_, err := testnet.TryCaddy(t, streamConfig(group("app", "127.0.0.1:9", "sticky cookie sid"), `
		server `+front("front")+` {
			proxy_pass app
		}`), nil)
	if err == nil || !strings.Contains(err.Error(), "group app has sticky, which works with HTTP requests: stream cannot use it") {
		t.Errorf("error %v", err)
	}
}

func TestARouteCannotBeGivenAtRunTimeWithoutSticky(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, group("app", b[0].Addr()), "\tproxy_pass app")
	status, answer, err := p.Admin("PATCH", "/upstream/groups/app/servers/"+url.PathEscape(b[0].Addr()),
		[]byte(`{"route":"a"}`), "Content-Type", "application/json")
	if err != nil || status != 400 || !strings.Contains(string(answer), "route does nothing without sticky") {
		t.Errorf("route: %d %s %v", status, answer, err)
	}
}
