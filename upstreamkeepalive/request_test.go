// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// headOf is what would be sent for req, or the refusal's status.
func headOf(req *http.Request, o options) (string, int) {
	b, _, r := appendHead(nil, req, "10.0.0.1:80", o)
	if r != nil {
		return "", r.status
	}
	return string(b), 0
}

func TestUnsafeRequestsAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*http.Request)
		status int
	}{
		{"line break in a value", func(r *http.Request) { r.Header["X-Foo"] = []string{"a\r\nX-Evil: 1"} }, 500},
		{"line feed in a value", func(r *http.Request) { r.Header["X-Foo"] = []string{"a\nb"} }, 500},
		{"carriage return in a value", func(r *http.Request) { r.Header["X-Foo"] = []string{"a\rb"} }, 500},
		{"NUL in a value", func(r *http.Request) { r.Header["X-Foo"] = []string{"a\x00b"} }, 500},
		{"line break in a name", func(r *http.Request) { r.Header["X-Foo\r\nX"] = []string{"a"} }, 500},
		{"space in a name", func(r *http.Request) { r.Header["X Foo"] = []string{"a"} }, 500},
		{"colon in a name", func(r *http.Request) { r.Header["X:"] = []string{"a"} }, 500},
		{"empty name", func(r *http.Request) { r.Header[""] = []string{"a"} }, 500},
		{"space in the method", func(r *http.Request) { r.Method = "GET / HTTP/1.1" }, 500},
		{"line break in the method", func(r *http.Request) { r.Method = "GET\r\n" }, 500},
		{"CONNECT", func(r *http.Request) { r.Method = "CONNECT" }, 405},
		{"space in the query", func(r *http.Request) { r.URL.RawQuery = "a HTTP/1.1" }, 500},
		{"line break in the query", func(r *http.Request) { r.URL.RawQuery = "a\r\nX: y" }, 500},
		{"DEL in the query", func(r *http.Request) { r.URL.RawQuery = "a\x7f" }, 500},
		{"line break in an opaque target", func(r *http.Request) { r.URL = &url.URL{Opaque: "/a\r\nX: y"} }, 500},
		{"absolute target", func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Opaque: "http://x/"} }, 500},
		{"no slash", func(r *http.Request) { r.URL = &url.URL{Path: "a"} }, 500},
		{"star, but not OPTIONS", func(r *http.Request) { r.URL = &url.URL{Path: "*"} }, 500},
		{"line break in the host", func(r *http.Request) { r.Host = "a\r\nX: y" }, 500},
		{"space in the host", func(r *http.Request) { r.Host = "a b" }, 500},
		{"slash in the host", func(r *http.Request) { r.Host = "a/b" }, 500},
		{"line break in Upgrade", func(r *http.Request) {
			r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"a\r\nX: y"}
		}, 500},
		{"line break in a trailer's name", func(r *http.Request) {
			r.Body, r.Trailer = io.NopCloser(strings.NewReader("a")), http.Header{"X\r\nY": nil}
		}, 500},
		{"Content-Length as a trailer", func(r *http.Request) {
			r.Body, r.Trailer = io.NopCloser(strings.NewReader("a")), http.Header{"Content-Length": nil}
		}, 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, _ := http.NewRequest("GET", "http://example.com/", nil)
			tt.change(req)
			if got, status := headOf(req, options{}); status != tt.status {
				t.Errorf("got %d and %q, want %d", status, got, tt.status)
			}
		})
	}
}

func TestHeadsThatAreSent(t *testing.T) {
	body := func(s string) func(*http.Request) {
		return func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader(s)), int64(len(s)) }
	}
	tests := []struct {
		name   string
		method string
		url    string
		change func(*http.Request)
		o      options
		want   string
	}{
		{"plain", "GET", "/a%20b?c=%0d%0a", nil, options{}, "GET /a%20b?c=%0d%0a HTTP/1.1|Host: example.com||"},
		{"spaces in the path are escaped", "GET", "/", func(r *http.Request) { r.URL.Path = "/a b\r\nc" }, options{}, "GET /a%20b%0D%0Ac HTTP/1.1|Host: example.com||"},
		{"empty path", "GET", "", nil, options{}, "GET / HTTP/1.1|Host: example.com||"},
		{"empty query", "GET", "/?", nil, options{}, "GET /? HTTP/1.1|Host: example.com||"},
		{"two slashes", "GET", "//a", nil, options{}, "GET //a HTTP/1.1|Host: example.com||"},
		{"OPTIONS *", "OPTIONS", "/", func(r *http.Request) { r.URL = &url.URL{Path: "*"} }, options{}, "OPTIONS * HTTP/1.1|Host: example.com||"},
		{"no host", "GET", "/", func(r *http.Request) { r.Host = "" }, options{}, "GET / HTTP/1.1|Host: 10.0.0.1:80||"},
		{"zone", "GET", "/", func(r *http.Request) { r.Host = "[fe80::1%eth0]:80" }, options{}, "GET / HTTP/1.1|Host: [fe80::1]:80||"},
		{"international host", "GET", "/", func(r *http.Request) { r.Host = "bücher.example" }, options{}, "GET / HTTP/1.1|Host: xn--bcher-kva.example||"},
		{"empty user agent", "GET", "/", func(r *http.Request) { r.Header["User-Agent"] = []string{""} }, options{}, "GET / HTTP/1.1|Host: example.com||"},
		{"a name keeps its case", "GET", "/", func(r *http.Request) { r.Header["Sec-WebSocket-Key"] = []string{"k"} }, options{}, "GET / HTTP/1.1|Host: example.com|Sec-WebSocket-Key: k||"},
		{"framing in the map means nothing", "GET", "/", func(r *http.Request) {
			for _, name := range []string{"Content-Length", "content-length", "Transfer-Encoding", "transfer-ENCODING", "Host", "hOST", "Trailer", "Connection", "Keep-Alive", "Proxy-Connection", "Expect", "Upgrade"} {
				r.Header[name] = []string{"5"}
			}
		}, options{}, "GET / HTTP/1.1|Host: example.com||"},
		{"TE trailers", "GET", "/", func(r *http.Request) { r.Header["Te"] = []string{"gzip, trailers"} }, options{}, "GET / HTTP/1.1|Host: example.com|Te: trailers||"},
		{"TE gzip", "GET", "/", func(r *http.Request) { r.Header["Te"] = []string{"gzip"} }, options{}, "GET / HTTP/1.1|Host: example.com||"},
		{"length", "PUT", "/", body("hello"), options{}, "PUT / HTTP/1.1|Host: example.com|Content-Length: 5||"},
		{"POST without a body", "POST", "/", nil, options{}, "POST / HTTP/1.1|Host: example.com|Content-Length: 0||"},
		{"DELETE without a body", "DELETE", "/", nil, options{}, "DELETE / HTTP/1.1|Host: example.com||"},
		{"unknown length", "PUT", "/", func(r *http.Request) {
			r.Body, r.ContentLength, r.Trailer = io.NopCloser(strings.NewReader("a")), -1, http.Header{"X-Sum": nil}
		}, options{}, "PUT / HTTP/1.1|Host: example.com|Transfer-Encoding: chunked|Trailer: X-Sum||"},
		{"upgrade", "GET", "/", func(r *http.Request) {
			r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		}, options{close: true}, "GET / HTTP/1.1|Host: example.com|Connection: Upgrade|Upgrade: websocket||"},
		{"Upgrade alone", "GET", "/", func(r *http.Request) { r.Header["Upgrade"] = []string{"websocket"} }, options{}, "GET / HTTP/1.1|Host: example.com||"},
		{"h2c", "GET", "/", func(r *http.Request) {
			r.Header["Connection"], r.Header["Upgrade"], r.Header["Http2-Settings"] = []string{"Upgrade"}, []string{"h2c"}, []string{"AAA"}
		}, options{}, "GET / HTTP/1.1|Host: example.com||"},
		{"keepalive off", "GET", "/", nil, options{close: true}, "GET / HTTP/1.1|Host: example.com|Connection: close||"},
		{"1.0", "PUT", "/", body("hello"), options{http10: true, close: true}, "PUT / HTTP/1.0|Host: example.com|Content-Length: 5||"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequest(tt.method, "http://example.com"+tt.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(req)
			}
			got, status := headOf(req, tt.o)
			if got = strings.ReplaceAll(got, "\r\n", "|"); got != tt.want || status != 0 {
				t.Errorf("got  %q (%d)\nwant %q", got, status, tt.want)
			}
		})
	}
}

func TestARefusedRequestReachesNoServer(t *testing.T) {
	s := rawTCP(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	tr := provisioned(t, new(Transport))
	req := request(t, "GET", s.Addr(), nil)
	req.Header["X-Foo"] = []string{"a\r\nX-Evil: 1"}
	_, err := tr.Exchange(req, new(exchange.Attempt))
	var e *exchange.Error
	if !errors.As(err, &e) || e.Kind != exchange.Refused || e.Status != 500 || e.Sent {
		t.Errorf("Exchange() = %+v, want refused with 500", err)
	}
	if n := len(tr.ConnStats()); n != 0 {
		t.Errorf("connections to %d servers, want none", n)
	}
	req = request(t, "PUT", s.Addr(), struct{ io.Reader }{strings.NewReader("a")})
	old := provisioned(t, &Transport{HTTPVersion: "1.0"})
	if _, err = old.Exchange(req, new(exchange.Attempt)); !errors.As(err, &e) || e.Status != 411 {
		t.Errorf("Exchange() of unknown length with HTTP/1.0 = %v, want 411", err)
	}
}

// FuzzRequest asserts that what is written is, to net/http, exactly the one
// request that was meant.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/a", "b=c", "example.com", "X-Foo", "bar", "body", false)
	f.Add("POST", "/a b", "%0d%0a", "[::1]:80", "Connection", "close", "", true)
	f.Add("GET / HTTP/1.1\r\nX: y\r\n\r\nGET", "/", "", "a\r\nb", "Content-Length", "5", "x", true)
	f.Add("PUT", "*", " ", "", "transfer-encoding", "chunked", "0\r\n\r\n", true)
	f.Fuzz(func(t *testing.T, method, path, query, host, name, value, body string, chunks bool) {
		req := &http.Request{
			Method: method, URL: &url.URL{Path: path, RawQuery: query}, Host: host,
			Header: http.Header{name: {value}, "X-Last": {"1"}},
		}
		if body != "" {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			if chunks {
				req.ContentLength = -1
			}
		}
		wire, plan, refused := appendHead(nil, req, "fallback:80", options{})
		if refused != nil {
			return
		}
		if plan.framing == chunked {
			var buf [sizeLine + copySize + 2]byte
			if len(body) > copySize {
				return
			}
			wire = append(wire, frameChunk(&buf, copy(buf[sizeLine:], body))...)
			wire, _ = appendTrailer(wire, nil)
		} else {
			wire = append(wire, body...)
		}
		rest := bytes.NewBuffer(wire)
		r := bufio.NewReader(rest)
		got, err := http.ReadRequest(r)
		if err != nil {
			if strings.Contains(err.Error(), "malformed Host header") || strings.Contains(err.Error(), "parse \"") {
				return // net/http is stricter than we are here, so nothing is split
			}
			t.Fatalf("net/http cannot read %q: %v", wire, err)
		}
		b, err := io.ReadAll(got.Body)
		if err != nil || string(b) != body {
			t.Errorf("body %q, %v, want %q", b, err, body)
		}
		if n := r.Buffered() + rest.Len(); n != 0 {
			t.Errorf("%d bytes after the request in %q", n, wire)
		}
		if method == "" {
			method = "GET"
		}
		if got.Method != method || got.Header.Get("X-Last") != "1" && http.CanonicalHeaderKey(name) != "X-Last" {
			t.Errorf("read %s %v from %q", got.Method, got.Header, wire)
		}
		if want := req.URL.RequestURI(); got.RequestURI != want && !strings.HasPrefix(path, "//") {
			t.Errorf("target %q, want %q", got.RequestURI, want)
		}
		for field := range got.Header {
			if key := http.CanonicalHeaderKey(name); field != key && field != "X-Last" && field != "Content-Length" {
				t.Errorf("field %q appeared in %q", field, wire)
			}
		}
	})
}
