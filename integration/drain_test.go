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

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// newLeaving is a server of everything that may be open when it is drained:
// /wait gets no answer, /half half of one, and an upgrade a WebSocket that echoes.
func newLeaving(t *testing.T) *testnet.Server {
	t.Helper()
	return testnet.NewTCP(t, func(c net.Conn, _ int) {
		r := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			switch {
			case req.Header.Get("Upgrade") != "":
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
				_, _ = io.Copy(c, r)
				return
			case strings.HasSuffix(req.URL.Path, "/half"):
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf\n\r\n")
				fallthrough
			case strings.HasSuffix(req.URL.Path, "/wait"):
				_, _ = r.Peek(1)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na\n")
		}
	})
}

// raw sends a request over a connection of its own.
func (p *proxy) raw(text string) *session {
	p.t.Helper()
	s := p.tcp("front")
	s.say(strings.ReplaceAll(text, "\n", "\r\n"))
	return s
}

// answer reads the header of the next response.
func (s *session) answer() *http.Response {
	s.t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(30 * time.Second))
	res, err := http.ReadResponse(s.r, nil)
	if err != nil {
		s.t.Fatalf("reading a response: %v", err)
	}
	return res
}

// TestWhatADrainedServerHoldsIsClosedAtItsDeadline opens one of everything on a
// server that is drained or removed with a deadline, through our transport
// and Caddy's.
func TestWhatADrainedServerHoldsIsClosedAtItsDeadline(t *testing.T) {
	for _, c := range []struct{ name, method, query, body, line string }{
		{"drained through the API", "PATCH", "?drain_timeout=400ms", `{"drain":true}`, ""},
		{"set down through the API", "PATCH", "?drain_timeout=0s", `{"down":true}`, ""},
		{"removed through the API", "DELETE", "?drain_timeout=400ms", "", ""},
		{"drained with an option", "PATCH", "", `{"drain":true}`, " drain_timeout=400ms"},
		{"removed with an option", "DELETE", "", "", " drain_timeout=0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			closesWhatIsOpen(t, c.line, func(p *proxy) {
				path := "/upstream/groups/app/servers/a" + c.query
				if c.method == "DELETE" {
					p.change(200, c.method, path, "")
				} else {
					p.change(200, c.method, path, c.body)
				}
			})
		})
	}
	t.Run("removed by a reload", func(t *testing.T) {
		t.Parallel()
		closesWhatIsOpen(t, " drain_timeout=400ms", nil)
	})
}

func closesWhatIsOpen(t *testing.T, option string, out func(*proxy)) {
	a, b := newLeaving(t), testnet.NewBackend(t, named("b"))
	site := `	proxy_pass /ours* app {
		stream_close_delay 1h
	}
	reverse_proxy /theirs* {
		stream_close_delay 1h
		lb_policy upstream app
		transport next_upstream {
			transport http
		}
	}
	reverse_proxy /caddys* {
		stream_close_delay 1h
		lb_policy upstream app
	}`
	other := b.Addr() + " id=b backup"
	p := serve(t, group("app", a.Addr()+" id=a"+option, testnet.RefusedAddr(t)+" down", other), site)
	paths := []string{"/ours", "/theirs", "/caddys"}
	for _, path := range paths {
		p.get(path) // each handler works
	}
	const head = " HTTP/1.1\nHost: x\nConnection: close\n"
	var again, lost, half, sockets []*session
	for _, path := range paths {
		again = append(again, p.raw("GET "+path+"/wait"+head+"\n"))
		lost = append(lost, p.raw("POST "+path+"/wait"+head+"Content-Length: 1\n\nx"))
		half = append(half, p.raw("GET "+path+"/half"+head+"\n"))
		sockets = append(sockets, p.raw("GET "+path+"/socket HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket\n\n"))
	}
	for i := range paths {
		if res := half[i].answer(); res.StatusCode != 200 {
			t.Fatalf("half an answer: status %d", res.StatusCode)
		}
		if res := sockets[i].answer(); res.StatusCode != 101 {
			t.Fatalf("upgrade: status %d", res.StatusCode)
		}
		if got := sockets[i].ask("hello"); got != "hello" {
			t.Errorf("echo %q", got)
		}
	}
	p.waitConns(4 * len(paths))

	if out != nil {
		out(p)
	} else {
		p.reloads = true
		p.MustReload(config(group("app", b.Addr()+" id=b"), site), nil)
	}
	for i, path := range paths {
		if res := lost[i].answer(); res.StatusCode != 502 {
			t.Errorf("%s: POST without an answer: status %d, want 502", path, res.StatusCode)
		}
		if got := half[i].rest(); !strings.HasPrefix("5\r\nhalf\n\r\n", got) { // without the last chunk
			t.Errorf("%s: half of an answer: %q", path, got)
		}
		if got := sockets[i].rest(); got != "" {
			t.Errorf("%s: after the WebSocket: %q", path, got)
		}
		res := again[i].answer()
		want := 200
		if path == "/caddys" { // Caddy itself does not try again
			want = 502
		}
		if body, _ := io.ReadAll(res.Body); res.StatusCode != want || want == 200 && string(body) != "b" {
			t.Errorf("%s: GET without an answer: %d %q, want %d of the next server", path, res.StatusCode, body, want)
		}
	}
	p.waitConns(0)
	if l := p.logs("drain timeout: what the server still had is closed", "app", 1)[0]; l.Fields["server"] != "a" || l.Fields["open"] != float64(4*len(paths)) {
		t.Errorf("log line %v, want server a and %d open", l.Fields, 4*len(paths))
	}
	for _, s := range p.servers("app") {
		if s.State.Failures > 0 {
			t.Errorf("server %s has %d failures, want none: a drain is nobody's", s.ID, s.State.Failures)
		}
	}
}

func TestStreamSessionsOfADrainedServerEndAtItsDeadline(t *testing.T) {
	t.Parallel()
	a, udp := testnet.NewLines(t, ""), testnet.NewUDP(t, nil)
	listen := fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t))
	p := serveStream(t, group("g", a.Addr()+" id=a", testnet.RefusedAddr(t)+" id=other backup")+group("u", udp.Addr()+" id=a"), `
		server `+front("s")+` {
			proxy_pass g
			access_log
		}
		server udp/`+listen+` {
			proxy_pass u
			access_log
		}`)
	s, flow := p.tcp("s"), open(t, "udp", listen)
	s.ask("hello")
	flow.exchange([]byte("hello"))
	p.waitConns(2)
	for _, g := range []string{"g", "u"} {
		p.change(200, "PATCH", "/upstream/groups/"+g+"/servers/a", `{"drain":true,"drain_timeout":"1h"}`)
		live := p.live(g)[0].State
		if left, err := time.ParseDuration(live.ClosesIn); live.State != "draining" || err != nil || left < 50*time.Minute {
			t.Errorf("%s: state %s, closes in %q, want draining and an hour", g, live.State, live.ClosesIn)
		}
	}
	s.ask("still there")
	flow.exchange([]byte("still there"))
	p.change(200, "PATCH", "/upstream/groups/g/servers/a?drain_timeout=100ms", `{}`)
	p.change(200, "PATCH", "/upstream/groups/u/servers/a", `{"drain_timeout":"100ms"}`)
	if got := s.rest(); got != "" {
		t.Errorf("the session got %q", got)
	}
	for _, x := range []*session{s, flow} {
		if l := p.ended(x); l.Fields["status"] != 200.0 {
			t.Errorf("status %v, want 200", l.Fields["status"])
		}
	}
	p.waitConns(0)
	if got := p.live("u")[0].State; got.State != "down" || got.ClosesIn != "" {
		t.Errorf("after the deadline: %s %s, want down", got.State, got.ClosesIn)
	}
}

func TestABoundClientLeavesADrainedServerAtItsDeadline(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr()+" id=a", b[1].Addr()+" id=b", "sticky cookie srv"), "\tproxy_pass app")
	bound := p.get("/").Get("Set-Cookie")
	ask := func() string { return p.get("/", "Cookie: "+bound).Text() }
	p.change(200, "PATCH", "/upstream/groups/app/servers/a?drain_timeout=1h", `{"drain":true}`)
	if got := ask(); got != "a" {
		t.Errorf("bound to the draining server: %s, want a", got)
	}
	p.change(200, "PATCH", "/upstream/groups/app/servers/a?drain_timeout=0s", `{"drain":true}`)
	testnet.Eventually(t, 30*time.Second, "the other server", func() bool { return ask() == "b" })
	p.change(200, "PATCH", "/upstream/groups/app/servers/a", `{"drain":null}`)
	if got := ask(); got != "a" {
		t.Errorf("enabled again: %s, want a", got)
	}
	for _, c := range [][3]string{
		{"PATCH", "?drain_timeout=1s", `query "drain_timeout" goes with a change that drains the server or sets it down`},
		{"PATCH", "?drain_timeout=soon", `query "drain_timeout": "soon" is not a duration: expected a number with a unit, such as 30s`},
		{"DELETE", "?drain_timeout=-1s", `query "drain_timeout": -1s is negative: expected a duration such as 30s`},
		{"DELETE", "?close=1s", `query "close": expected drain_timeout once, or nothing`},
	} {
		body := ""
		if c[0] == "PATCH" {
			body = `{"weight":2}`
		}
		if got := p.change(400, c[0], "/upstream/groups/app/servers/a"+c[1], body); !strings.Contains(got, strings.ReplaceAll(c[2], `"`, `\"`)) {
			t.Errorf("%s %s answers %s", c[0], c[1], got)
		}
	}
	if w := p.servers("app")[0].Weight; w != 1 {
		t.Errorf("weight %d after refused changes", w)
	}
}
