// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestResponseFramingsReachTheClientWhole(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", 1<<16)
	cases := map[string]struct {
		answer testnet.Answer
		method string
		status int
		body   string
		length string // Content-Length that the client sees
		reuse  bool
	}{
		"/length":     {testnet.Answer{Body: big}, "GET", 200, big, fmt.Sprint(len(big)), true},
		"/empty":      {testnet.Answer{Header: []string{"Content-Length: 0"}}, "GET", 200, "", "0", true},
		"/chunked":    {testnet.Answer{Header: []string{"Transfer-Encoding: chunked"}, Body: "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"}, "GET", 200, "hello world", "", true},
		"/untilclose": {testnet.Answer{Raw: "HTTP/1.1 200 OK\r\n\r\n" + big, Then: testnet.Close}, "GET", 200, big, "", false},
		"/http10":     {testnet.Answer{Raw: "HTTP/1.0 200 OK\r\n\r\nold", Then: testnet.Close}, "GET", 200, "old", "", false},
		"/head":       {testnet.Answer{Header: []string{"Content-Length: 77"}}, "HEAD", 200, "", "77", true},
		"/204":        {testnet.Answer{Status: 204}, "GET", 204, "", "", true},
		"/304":        {testnet.Answer{Status: 304, Header: []string{"Content-Length: 77", "ETag: \"x\""}}, "GET", 304, "", "", true},
		"/302":        {testnet.Answer{Status: 302, Header: []string{"Location: /else", "Content-Length: 0"}}, "GET", 302, "", "0", true},
		"/bareLF":     {testnet.Answer{Raw: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"}, "GET", 200, "ok", "2", true},
		"/hints":      {testnet.Answer{Raw: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}, "GET", 200, "ok", "2", true},
	}
	servers := map[string]*testnet.Backend{}
	groups, site := "", ""
	for path, c := range cases {
		servers[path] = testnet.NewBackend(t, c.answer)
		groups += group(path[1:], servers[path].Addr())
		site += fmt.Sprintf("\tproxy_pass %s %s\n", path, path[1:])
	}
	p := serve(t, groups, site)
	for path, c := range cases {
		for range 2 {
			res := testnet.Do(t, c.method, p.URL("front")+path, nil, nil)
			if res.Status != c.status || res.BodySHA256 != sha(c.body) && c.body != "" || len(res.Body) > 0 && c.body == "" {
				t.Errorf("%s: status %d, %d bytes, want %d, %d bytes", path, res.Status, len(res.Body), c.status, len(c.body))
			}
			if got := res.Get("Content-Length"); got != c.length && path != "/204" && path != "/304" && path != "/http10" {
				t.Errorf("%s: Content-Length %q, want %q", path, got, c.length)
			}
			if got := fmt.Sprint(res.Interim); (path == "/hints") != (got == "[103]") {
				t.Errorf("%s: interim responses %s", path, got)
			}
			p.waitConns(0)
		}
		if _, accepted := servers[path].Conns(); (accepted == 1) != c.reuse {
			t.Errorf("%s: %d connections for 2 requests, kept should be %v", path, accepted, c.reuse)
		}
	}
}

func sha(s string) string { return testnet.SHA256([]byte(s)) }

// RFC 9112, section 6.1: an HTTP/1.0 message with Transfer-Encoding has faulty
// framing, whatever its Content-Length; the connection is closed after it. The
// other reading, that of a server which knows no chunks, would hand them out as
// the body.
func TestChunksOfAnHTTP10ServerAreReadAsNginxReadsThem(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
	cases := map[string]struct{ raw, body string }{
		"/chunks":    {ok + "5\r\nhello\r\n0\r\n\r\n", "hello"},
		"/followed":  {ok + "5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", "hello"},
		"/no-chunks": {ok + "hello", ""},
		"/cut":       {ok + "5\r\nhello\r\n", "hello"},
	}
	for path, c := range cases {
		then := testnet.Keep
		if path == "/no-chunks" || path == "/cut" {
			then = testnet.Close
		}
		b := testnet.NewBackend(t, testnet.Answer{Raw: c.raw, Then: then})
		fronts := map[string]string{
			"nginx": testnet.StartNginx(t, `
http {
	access_log off;
	upstream app { server `+b.Addr()+`; keepalive 8; }
	server {
		listen {{addr "front"}};
		location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }
	}
}`, nil).Addr("front"),
			"caddy": serve(t, group("app", b.Addr(), "keepalive 8"), "\tproxy_pass app").Addr("front"),
		}
		for name, front := range fronts {
			_, before := b.Conns()
			for range 2 {
				client, err := testnet.Dial(front)
				if err != nil {
					t.Fatal(err)
				}
				// What comes without a chunk may be cut off before the header is sent.
				res, err := client.Do("GET", path, nil, nil)
				client.Close()
				if string(res.Body) != c.body || (err == nil) != (then == testnet.Keep) {
					t.Errorf("%s, %s: %q, %v, want %q whole: %v", name, path, res.Body, err, c.body, then == testnet.Keep)
				}
			}
			if _, after := b.Conns(); after-before != 2 {
				t.Errorf("%s, %s: %d connections for 2 requests, want 2", name, path, after-before)
			}
		}
	}
}

func TestAResponseCutShortIsNotEndedCleanly(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if r.Target() == "/length" {
			return testnet.Answer{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", Then: testnet.Close}
		}
		return testnet.Answer{Raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", Then: testnet.Close}
	})
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	for _, target := range []string{"/length", "/chunked"} {
		if res, err := p.dial().Do("GET", target, nil, nil); err == nil {
			t.Errorf("%s: the client takes %q for the whole body", target, res.Body)
		}
		p.waitConns(0)
	}
}

func TestAnswersThatAreNotHTTPAre502(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named(""))
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	for _, raw := range []string{
		"hello\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX-A : 1\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX\x01A: 1\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 80<<10) + "\r\n\r\n",
		"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		b.SetAnswer(testnet.Answer{Raw: raw, Then: testnet.Close})
		res := p.get("/")
		if res.Status != 502 {
			t.Errorf("%.60q: status %d, want 502", raw, res.Status)
		}
		p.waitConns(0)
	}
}

func TestBytesNobodyAskedForAreNobodysAnswer(t *testing.T) {
	t.Parallel()
	var poison bool
	b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if r.Target() == "/poison" {
			return testnet.Answer{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"}
		}
		return named("clean")
	})
	p := serve(t, group("app", b.Addr(), "keepalive 8"), "\tproxy_pass app")
	for range 3 {
		if res := p.get("/poison"); res.Text() != "ok" {
			t.Errorf("answer %q, want ok", res.Text())
		}
		p.waitConns(0)
		if res := p.get("/"); res.Text() != "clean" {
			poison = true
		}
	}
	if poison {
		t.Error("a request got bytes that another's answer left behind")
	}
}

func TestRequestBodiesArriveInBothFramings(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Echo: true})
	p := serve(t, group("app", b.Addr()), `
	proxy_pass /stream app {
		request_buffering off
	}
	proxy_pass app`)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	for _, target := range []string{"/", "/stream"} {
		if res := p.post(target, content); res.BodySHA256 != testnet.SHA256(content) {
			t.Errorf("%s: the echo of %d bytes differs", target, len(content))
		}
		var chunks bytes.Buffer
		for part := range slices.Chunk(content, 10007) {
			fmt.Fprintf(&chunks, "%x\r\n%s\r\n", len(part), part)
		}
		fmt.Fprint(&chunks, "0\r\nX-Checksum: 42\r\n\r\n")
		c := p.dial()
		if err := c.Send("POST " + target + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Checksum\r\n\r\n" + chunks.String()); err != nil {
			t.Fatal(err)
		}
		res, err := c.Receive("POST")
		if err != nil || res.BodySHA256 != testnet.SHA256(content) {
			t.Errorf("%s chunked: the echo of %d bytes differs: %v", target, len(content), err)
		}
		all := b.Requests()
		if got := all[len(all)-1].Trailer; len(got) != 1 || got[0] != (testnet.Header{Name: "X-Checksum", Value: "42"}) {
			t.Errorf("%s: the backend got the trailers %v, want X-Checksum: 42", target, got)
		}
	}
}

func TestResponseTrailersReachTheClient(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{
		Header: []string{"Transfer-Encoding: chunked", "Trailer: X-Sum"}, Body: "2\r\nok\r\n0\r\nX-Sum: 7\r\nX-More: 8\r\n\r\n",
	})
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	res := p.get("/")
	got := map[string]string{}
	for _, h := range res.Trailer {
		got[h.Name] = h.Value
	}
	if res.Text() != "ok" || got["X-Sum"] != "7" || got["X-More"] != "8" {
		t.Errorf("body %q, trailers %v, want ok, X-Sum: 7 and X-More: 8", res.Text(), got)
	}
}

func TestExpectContinueIsAnsweredByTheFrontAndSwallowedFromTheBackend(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Echo: true, Continue: true})
	p := serve(t, group("app", b.Addr()), `
	proxy_pass /stream app {
		request_buffering off
	}
	proxy_pass app`)
	for _, target := range []string{"/", "/stream"} {
		c := p.dial()
		if err := c.Send("POST " + target + " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = c.Conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, err := bufio.NewReader(io.LimitReader(c.Reader(), 25)).ReadString('\n')
		if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("%s: before the body: %q, %v, want 100", target, line, err)
		}
		if err := c.Send("hello"); err != nil {
			t.Fatal(err)
		}
		res, err := c.Receive("POST")
		if err != nil || res.Status != 200 || res.Text() != "hello" || len(res.Interim) != 0 {
			t.Errorf("%s: %d %q after %v, %v; want 200 hello and no other 100", target, res.Status, res.Text(), res.Interim, err)
		}
	}
	for _, r := range b.Requests() {
		if r.Get("Expect") != "" {
			t.Errorf("the backend got Expect: %s", r.Get("Expect"))
		}
	}
}

func TestAnEarlyAnswerToALargeUploadReachesTheClient(t *testing.T) {
	t.Parallel()
	// Answers after the header, and reads on only for a while.
	b := testnet.NewTCP(t, func(c net.Conn, _ int) {
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		_, _ = io.CopyN(io.Discard, r, 1<<20)
	})
	p := serve(t, group("app", b.Addr(), testnet.RefusedAddr(t)+" backup"), `
	proxy_pass /stream app {
		request_buffering off
	}
	proxy_pass app`)
	content := make([]byte, 16<<20)
	for _, target := range []string{"/", "/stream"} {
		c := p.dial()
		res, err := c.Do("POST", target, nil, content)
		if err != nil || res.Status != 413 || res.Text() != "large" {
			t.Errorf("%s: %d %q, %v; want the backend's 413", target, res.Status, res.Text(), err)
		}
		c.Close()
		p.waitConns(0)
	}
	if s := p.servers("app")[0].State; s.Failures != 0 {
		t.Errorf("%d failures, want none", s.Failures)
	}
}

// An answer that comes before the end of an upload reaches a client that waits
// for it in the middle. It is the last on its connection, whatever follows there.
func TestAnEarlyAnswerReachesAClientThatStopsInTheMiddleOfItsUpload(t *testing.T) {
	t.Parallel()
	b := testnet.NewTCP(t, func(c net.Conn, _ int) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		switch req.URL.Path {
		case "/length":
			_, _ = io.WriteString(c, "HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\nearly")
		case "/chunked":
			_, _ = io.WriteString(c, "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n")
		case "/close":
			_, _ = io.WriteString(c, "HTTP/1.0 403 No\r\n\r\nearly")
			_ = c.(*net.TCPConn).CloseWrite()
		case "/broken":
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		}
		_, _ = io.Copy(io.Discard, c)
	})
	p := serve(t, group("app", b.Addr())+group("own", b.Addr()), `
	handle_path /own/* {
		proxy_pass app {
			request_buffering off
		}
	}
	handle_path /caddy/* {
		reverse_proxy {
			lb_policy upstream own
			transport next_upstream {
				request_buffering off
				transport http
			}
		}
	}`)
	const smuggled = "GET /own/length HTTP/1.1\r\nHost: x\r\n\r\n"
	for transport, cases := range map[string]map[string]int{
		"/own": {"/length": 403, "/chunked": 403, "/close": 403, "/broken": 502},
		// Of a connection that broke Caddy's transport tells when the client goes on.
		"/caddy": {"/length": 403, "/chunked": 403, "/close": 403},
	} {
		for path, want := range cases {
			for _, framing := range []string{"Content-Length: 65536\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n10000\r\n"} {
				c := p.dial()
				defer c.Close()
				if err := c.Send("POST " + transport + path + " HTTP/1.1\r\nHost: x\r\n" + framing + strings.Repeat("x", 20_000)); err != nil {
					t.Fatal(err)
				}
				res, err := c.Receive("POST")
				if err != nil || res.Status != want || want == 403 && res.Text() != "early" || res.Get("Connection") != "close" {
					t.Errorf("%s%s, %.20q: %d %q %v, Connection: %s; want %d and close", transport, path, framing, res.Status, res.Text(), err, res.Get("Connection"), want)
					continue
				}
				rest := strings.Repeat("x", 65536-20_000)
				if strings.HasPrefix(framing, "Transfer") {
					rest += "\r\n0\r\n\r\n"
				}
				_ = c.Send(rest + smuggled)
				_ = c.Conn.SetReadDeadline(time.Now().Add(30 * time.Second))
				if more, err := io.ReadAll(c.Reader()); len(more) > 0 || err != nil && !testnet.Broken(err) {
					t.Errorf("%s%s, %.20q: then %q, %v, want the end", transport, path, framing, more, err)
				}
			}
		}
	}
	p.waitConns(0)
}

func TestARequestBodyTooLargeForTheSiteIs413AndNobodysFailure(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("app", b.Addr()), `
	request_body {
		max_size 1KiB
	}
	proxy_pass /stream app {
		request_buffering off
	}
	proxy_pass app`)
	for _, target := range []string{"/", "/stream"} {
		if res := p.post(target, make([]byte, 4096)); res.Status != 413 {
			t.Errorf("%s: status %d, want 413", target, res.Status)
		}
		p.waitConns(0)
	}
	if s := p.servers("app")[0].State; s.Failures != 0 {
		t.Errorf("%d failures, want none", s.Failures)
	}
}

func TestHTTP10IsSentOnDemand(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("ok"))
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app {\n\t\thttp_version 1.0\n\t}")
	if res := p.post("/", []byte("hello")); res.Status != 200 {
		t.Errorf("status %d, want 200", res.Status)
	}
	r := b.WaitRequests(1)[0]
	if r.Line != "POST / HTTP/1.0" || r.Get("Content-Length") != "5" || string(r.Body) != "hello" {
		t.Errorf("the backend got %q, Content-Length %q, body %q", r.Line, r.Get("Content-Length"), r.Body)
	}
}
