// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/goleak"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

func TestMain(m *testing.M) {
	if os.Getenv(benchServer) != "" {
		serveBenchmarks()
		return
	}
	goleak.VerifyTestMain(m)
}

// provisioned returns t, ready to use until the test ends.
func provisioned(tb testing.TB, t *Transport) *Transport {
	tb.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	tb.Cleanup(cancel)
	if err := t.Provision(ctx); err != nil {
		tb.Fatalf("Provision() = %v", err)
	}
	tb.Cleanup(func() {
		if err := t.Cleanup(); err != nil {
			tb.Errorf("Cleanup() = %v", err)
		}
	})
	return t
}

// rawServer runs handle for each connection it accepts.
type rawServer struct {
	net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

func listen(tb testing.TB, network, address string, handle func(n int, c net.Conn, r *bufio.Reader)) *rawServer {
	tb.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	return serve(tb, l, handle)
}

func serve(tb testing.TB, l net.Listener, handle func(n int, c net.Conn, r *bufio.Reader)) *rawServer {
	s := &rawServer{Listener: l}
	s.wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.wg.Go(func() {
				defer c.Close()
				handle(n, c, bufio.NewReader(c))
			})
		}
	})
	tb.Cleanup(s.stop)
	return s
}

// rawTCP answers each request on a connection with what handle returns.
func rawTCP(tb testing.TB, handle func(n int, c net.Conn, r *bufio.Reader)) *rawServer {
	return listen(tb, "tcp", "127.0.0.1:0", handle)
}

func (s *rawServer) stop() {
	s.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// answering answers every request with the same bytes.
func answering(answer string) func(int, net.Conn, *bufio.Reader) {
	return func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
}

// request makes a request to a server's address, as Caddy's handler would.
func request(tb testing.TB, method string, to net.Addr, body io.Reader) *http.Request {
	tb.Helper()
	return requestCtx(context.Background(), tb, method, to, body)
}

func requestCtx(ctx context.Context, tb testing.TB, method string, to net.Addr, body io.Reader) *http.Request {
	tb.Helper()
	di := reverseproxy.DialInfo{Network: to.Network(), Address: to.String()}
	if di.Network == "tcp" {
		di.Host, di.Port, _ = net.SplitHostPort(di.Address)
	} else {
		di.Host = di.Address
	}
	ctx = context.WithValue(ctx, caddy.CtxKey("reverse_proxy.dial_info"), di)
	req, err := http.NewRequestWithContext(ctx, method, "http://example.com/path?q=1", body)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

// ender counts the ends of an exchange.
type ender struct {
	mu    sync.Mutex
	ended int
	err   error
	ch    chan struct{}
}

func newEnder() *ender { return &ender{ch: make(chan struct{}, 16)} }

func (e *ender) Ended(_ *exchange.Attempt, err error) {
	e.mu.Lock()
	e.ended++
	e.err = err
	e.mu.Unlock()
	e.ch <- struct{}{}
}

func (e *ender) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// eventually polls until ok, or fails the test.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not in 5 s: %s", what)
		}
	}
}

// get sends a GET and returns the status and the body.
func get(tb testing.TB, t *Transport, to net.Addr) (int, string) {
	tb.Helper()
	res, err := t.RoundTrip(request(tb, "GET", to, nil))
	if err != nil {
		tb.Fatalf("RoundTrip() = %v", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatalf("reading the body: %v", err)
	}
	return res.StatusCode, string(b)
}

func TestAConnectionServesManyRequests(t *testing.T) {
	conns := make(chan int, 16)
	s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		conns <- n
		answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")(n, c, r)
	})
	tr := provisioned(t, new(Transport))
	for range 5 {
		if code, body := get(t, tr, s.Addr()); code != 200 || body != "hello" {
			t.Fatalf("got %d %q, want 200 hello", code, body)
		}
	}
	if len(conns) != 1 {
		t.Errorf("%d connections, want 1", len(conns))
	}
}

func TestALargeBodyOfUnknownLengthArrivesWhole(t *testing.T) {
	want := strings.Repeat("0123456789", 100_000)
	s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			b, err := io.ReadAll(req.Body)
			if err != nil || string(b) != want {
				io.WriteString(c, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n")
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
		}
	})
	tr := provisioned(t, new(Transport))
	for range 3 {
		req := request(t, "POST", s.Addr(), struct{ io.Reader }{strings.NewReader(want)})
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if res.StatusCode != 200 || string(b) != "abc" || err != nil {
			t.Fatalf("got %d %q %v, want 200 abc", res.StatusCode, b, err)
		}
		res.Body.Close()
	}
}
