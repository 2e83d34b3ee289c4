// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// recorder is a backend that keeps every byte and answers each connection once.
type recorder struct {
	*testnet.Server
	mu   sync.Mutex // guards seen
	seen []string   // by connection
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = testnet.NewTCP(t, func(c net.Conn, _ int) {
		var all strings.Builder
		buf := make([]byte, 1<<16)
		answered := false
		for {
			n, err := c.Read(buf)
			all.Write(buf[:n])
			if !answered && strings.Contains(all.String(), "\r\n\r\n") {
				answered = true
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
			if err != nil {
				r.mu.Lock()
				r.seen = append(r.seen, all.String())
				r.mu.Unlock()
				return
			}
		}
	})
	return r
}

// take waits until no connection is open and returns and forgets what was sent.
func (r *recorder) take(t *testing.T) []string {
	t.Helper()
	testnet.Eventually(t, 10*time.Second, "the connections to the backend end", func() bool {
		open, _ := r.Conns()
		return open == 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.seen
	r.seen = nil
	return out
}

// oneRequest fails the test unless raw is exactly one request.
func oneRequest(t *testing.T, what, raw string) (head string) {
	t.Helper()
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	if n := strings.Count(lines[0], " "); n != 2 || !strings.HasSuffix(lines[0], " HTTP/1.1") {
		t.Errorf("%s: request line %q", what, lines[0])
	}
	if strings.ContainsAny(strings.Join(lines, ""), "\r\n\x00") {
		t.Errorf("%s: a bare control character in %q", what, head)
	}
	framings := 0
	for _, l := range lines[1:] {
		name, _, ok := strings.Cut(l, ":")
		if !ok || strings.TrimSpace(name) != name || strings.EqualFold(name, "X-Evil") {
			t.Errorf("%s: header line %q", what, l)
		}
		if strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Transfer-Encoding") {
			framings++
		}
	}
	if framings > 1 || framings == 0 && body != "" {
		t.Errorf("%s: %d framings, body %q in %q", what, framings, body, raw)
	}
	if strings.Contains(body, "HTTP/1.1") {
		t.Errorf("%s: a second request in %q", what, raw)
	}
	return head
}

const evil = "x\r\nX-Evil: 1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"

func TestHeaderUpCannotSplitARequest(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	p := serve(t, group("app", r.Addr(), testnet.RefusedAddr(t)+" backup"), `
	@h path /method
	method @h {query.v}
	proxy_pass /value app {
		header_up X-Foo {query.v}
	}
	proxy_pass /name app {
		header_up {query.v} value
	}
	proxy_pass /host app {
		header_up Host {query.v}
	}
	proxy_pass /rewrite app {
		rewrite /{query.v}
	}
	proxy_pass /query app {
		rewrite /?q={query.v}
	}
	proxy_pass /verb app {
		method {query.v}
	}
	proxy_pass /upgrade app {
		header_up Connection Upgrade
		header_up Upgrade {query.v}
	}
	proxy_pass /agent app {
		header_up User-Agent {query.v}
	}
	proxy_pass app`)
	values := []string{evil, "a\rb", "a\nb", "a\x00b", "\r\n", "a\r\n b", "a b", "a\x7fb", "h2c", "ok"}
	for _, path := range []string{"/value", "/name", "/host", "/rewrite", "/query", "/verb", "/method", "/upgrade", "/agent"} {
		for _, v := range values {
			what := fmt.Sprintf("%s %q", path, v)
			c := p.dial()
			res, err := c.Do("GET", path+"?v="+url.QueryEscape(v), nil, nil)
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			c.Close()
			for _, raw := range r.take(t) {
				head := strings.ToLower(oneRequest(t, what, raw))
				if strings.Contains(head, "upgrade: h2c") {
					t.Errorf("%s: the backend got %q", what, raw)
				}
			}
			if v == "ok" && path != "/upgrade" && res.Status != 200 {
				t.Errorf("%s: status %d, want 200", what, res.Status)
			}
			if v == evil && (path == "/value" || path == "/agent") && res.Status != 500 {
				t.Errorf("%s: status %d, want 500", what, res.Status)
			}
		}
	}
	if s := p.servers("app")[0].State; s.Failures != 0 || s.State != "up" {
		t.Errorf("state %+v, want no failure: it is not the server's fault", s)
	}
	p.waitConns(0)
}

func TestFramingSetByHeaderUpIsIgnored(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	p := serve(t, group("app", r.Addr()), `
	proxy_pass /cl app {
		header_up Content-Length 3
	}
	proxy_pass /te app {
		header_up Transfer-Encoding chunked
	}
	proxy_pass /both app {
		header_up Content-Length 0
		header_up Transfer-Encoding "identity, chunked"
		header_up +Content-Length 99
		header_up Trailer Content-Length
		header_up Connection "close, X-Foo"
	}`)
	for _, path := range []string{"/cl", "/te", "/both"} {
		for _, content := range []string{"", "GET / HTTP/1.0\r\n\r\n"} {
			what := fmt.Sprintf("%s with %d bytes", path, len(content))
			method := "GET"
			if content != "" {
				method = "POST"
			}
			res := testnet.Do(t, method, p.URL("front")+path, nil, []byte(content))
			if res.Status != 200 {
				t.Errorf("%s: status %d, want 200", what, res.Status)
			}
			seen := r.take(t)
			if len(seen) != 1 {
				t.Fatalf("%s: %d connections, want 1", what, len(seen))
			}
			head, body, _ := strings.Cut(seen[0], "\r\n\r\n")
			lower := strings.ToLower(head)
			if content != "" && !strings.Contains(lower, fmt.Sprintf("\r\ncontent-length: %d", len(content))) ||
				strings.Contains(lower, "transfer-encoding") || strings.Contains(lower, "\r\ntrailer") ||
				strings.Count(lower, "content-length") > 1 || body != content {
				t.Errorf("%s: the backend got %q", what, seen[0])
			}
			if content == "" && strings.Contains(lower, "content-length") && !strings.Contains(lower, "content-length: 0") {
				t.Errorf("%s: the backend got %q", what, seen[0])
			}
		}
	}
}

// What a client may try on the wire itself.
func TestControlCharactersFromTheClientNeverReachTheBackend(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	p := serve(t, group("app", r.Addr()), "\tproxy_pass app")
	const end = "\r\nHost: x\r\n\r\n"
	for _, raw := range []string{
		"GE\x01T / HTTP/1.1" + end,
		"GET\t/ HTTP/1.1" + end,
		"GET /a\x00b HTTP/1.1" + end,
		"GET /a\x7fb HTTP/1.1" + end,
		"GET /a\x01b HTTP/1.1" + end,
		"GET /a\rb HTTP/1.1" + end,
		"GET /a b HTTP/1.1" + end,
		"GET /%0d%0aX-Evil:%201%0d%0a HTTP/1.1" + end,
		"GET /?%0d%0aX-Evil:%201 HTTP/1.1" + end,
		"GET /?a\x01b HTTP/1.1" + end,
		"GET //evil/%00%0a HTTP/1.1" + end,
		"GET http://evil/%0d%0a HTTP/1.1" + end,
		"OPTIONS * HTTP/1.1" + end,
		"GET / HTTP/1.1\r\nHost: a\x01b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x/../y?z\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX-A: a\rX-Evil: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX-A: a\x00b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX-A : a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX-A: a\r\n X-Evil: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4 ;x\r\nabcd\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Content-Length, Host\r\nContent-Length: 4\r\n\r\nabcd",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
	} {
		c := p.dial()
		c.Timeout = 2 * time.Second
		if err := c.Send(raw); err != nil {
			t.Fatal(err)
		}
		res, err := c.Receive("GET")
		if err != nil && !testnet.Broken(err) {
			t.Errorf("%q: %v", raw, err)
		}
		c.Close()
		p.waitConns(0)
		for _, seen := range r.take(t) {
			head := strings.ToLower(oneRequest(t, fmt.Sprintf("%q", raw), seen))
			if strings.Contains(head, "http2-settings") || strings.Contains(head, "upgrade: h2c") {
				t.Errorf("%q: the backend got %q", raw, seen)
			}
		}
		if res.Status >= 502 {
			t.Errorf("%q: status %d, want no failure of the server", raw, res.Status)
		}
	}
}

func TestConnectIs405AndReachesNoBackend(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	p := serve(t, group("app", r.Addr()), "\tproxy_pass app")
	for _, raw := range []string{
		"CONNECT evil:443 HTTP/1.1\r\nHost: evil:443\r\n\r\n",
		"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c := p.dial()
		if err := c.Send(raw + "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := c.Receive("CONNECT")
		if err != nil || res.Status != http.StatusMethodNotAllowed {
			t.Errorf("%q: %q, %v, want 405", raw, res.Line, err)
		}
		c.Close()
		for _, seen := range r.take(t) {
			if strings.Contains(seen, "CONNECT") {
				t.Errorf("the backend got %q", seen)
			}
		}
	}
	if s := p.servers("app")[0].State; s.Failures != 0 {
		t.Errorf("%d failures, want none", s.Failures)
	}
}
