// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// startHTTP3 serves handler over HTTP/3 only, and counts the connections.
func startHTTP3(t *testing.T, cert tls.Certificate, handler http.HandlerFunc) (addr string, conns *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return conn.LocalAddr().String(), serveHTTP3(t, conn, cert, handler)
}

// serveHTTP3 is startHTTP3 on a socket that is there already.
func serveHTTP3(t *testing.T, conn net.PacketConn, cert tls.Certificate, handler http.HandlerFunc) (conns *atomic.Int64) {
	t.Helper()
	conns = new(atomic.Int64)
	s := &http3.Server{
		Handler: handler, TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{cert}}),
		ConnContext: func(ctx context.Context, _ *quic.Conn) context.Context { conns.Add(1); return ctx },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(conn)
	}()
	t.Cleanup(func() {
		s.Close()
		conn.Close()
		<-done
	})
	return conns
}

// deafUDP is the address of a socket that answers nothing.
func deafUDP(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

// overHTTP3 is the block of a proxy_pass over HTTP/3.
func (a *authority) overHTTP3(options string) string {
	return "{\n\t\thttp_version 3\n\t\ttls_trust_pool file " + a.file + "\n" + options + "\n\t}\n"
}

func TestHTTP3BackendsBalanceFailOverAndKeepOneConnection(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	addr, conns := startHTTP3(t, cert, echo)
	other, otherConns := startHTTP3(t, cert, echo)
	dead := deafUDP(t)
	p := serve(t, group("app", dead+" fail_timeout=1h", addr)+group("alone", addr)+group("two", addr, other), `
	proxy_pass /missing https://alone `+ca.overHTTP3("next_upstream http_404")+`
	proxy_pass /two https://two `+ca.overHTTP3("")+`
	proxy_pass https://app `+ca.overHTTP3("connect_timeout 3s"))
	for i := range 5 {
		target := fmt.Sprintf("/%d", i)
		// A body of which nothing was sent may go to the next server.
		res := p.post(target, []byte("hello"))
		if res.Status != 200 || res.Get("X-Proto") != "HTTP/3.0" || res.Text() != "hello" {
			t.Errorf("request %d: %d over %q, body %q", i, res.Status, res.Get("X-Proto"), res.Text())
		}
		tried, status := p.tries(target)
		wantTried, wantStatus := addr, "200"
		if i == 0 {
			wantTried, wantStatus = dead+", "+addr, "504, 200"
		}
		if tried != wantTried || status != wantStatus {
			t.Errorf("request %d: tries %q %q, want %q %q", i, tried, status, wantTried, wantStatus)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests of one handler, want one that is kept", n)
	}
	if s := p.servers("app"); s[0].State.State != "unhealthy" || s[1].State.Failures != 0 || s[1].State.Picks != 5 {
		t.Errorf("servers %+v, want the dead one out and 5 picks of the other", s)
	}
	if res := p.get("/missing"); res.Status != 404 {
		t.Errorf("status %d, want the only server's own 404", res.Status)
	}
	for range 4 {
		p.get("/two")
	}
	if s := p.servers("two"); s[0].State.Picks != 2 || s[1].State.Picks != 2 || otherConns.Load() != 1 {
		t.Errorf("servers %+v and %d connections to the second, want 2 requests each over one", s, otherConns.Load())
	}
	p.waitConns(0)
}

func TestAnHTTP3BackendThatIsSilentTimesOut(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	var silent atomic.Int64
	addr, _ := startHTTP3(t, cert, func(_ http.ResponseWriter, r *http.Request) {
		silent.Add(1)
		<-r.Context().Done()
	})
	good, _ := startHTTP3(t, cert, echo)
	p := serve(t, group("app", addr+" max_fails=0", good)+group("alone", addr)+group("dead", deafUDP(t)), `
	proxy_pass /alone https://alone `+ca.overHTTP3("read_timeout 1s")+`
	proxy_pass /dead https://dead `+ca.overHTTP3("connect_timeout 1s")+`
	proxy_pass https://app `+ca.overHTTP3("read_timeout 3s"))
	for _, c := range []struct {
		target, group string
		status        int
		tries, reason string
	}{
		{"/alone", "alone", 504, "504", "read header: timeout: not within 1s"},
		{"/dead", "dead", 504, "504", "connect: timeout: not within 1s"},
		{"/", "app", 200, "504, 200", "read header: timeout: not within 3s"},
	} {
		res := p.get(c.target)
		if _, tries := p.tries(c.target); res.Status != c.status || tries != c.tries {
			t.Errorf("%s: status %d, tries %q; want %d and %q", c.target, res.Status, tries, c.status, c.tries)
		}
		if s := p.servers(c.group)[0].State; s.LastError != c.reason || s.Failures != 1 {
			t.Errorf("%s: %+v, want one failure: %s", c.target, s, c.reason)
		}
	}
	if n := silent.Load(); n != 2 {
		t.Errorf("%d requests reached the silent server, want 2", n)
	}
	p.waitConns(0)
}

func TestAnHTTP3BackendThatStopsInTheMiddleOfABodyIsCut(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	addr, _ := startHTTP3(t, cert, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	p := serve(t, group("app", addr), "\tproxy_pass https://app "+ca.overHTTP3("read_timeout 1s\n\t\tflush_interval -1"))
	c := p.dial()
	if res, err := c.Do("GET", "/", nil, nil); err == nil || res.Status != 200 {
		t.Errorf("status %d, %q, %v; want a response that breaks off", res.Status, res.Text(), err)
	}
	p.waitConns(0)
	if s := p.servers("app")[0]; s.State.State != "up" || s.State.Failures != 0 {
		t.Errorf("state %+v, want up without failures", s.State)
	}
	labels := fmt.Sprintf(`address="%s",group="app",server="%[1]s"`, addr)
	if got := p.metric("server_broken_responses_total", labels); got != "1" {
		t.Errorf("%q broken responses, want 1", got)
	}
}

// Requests to a server that come together wait for one connection over HTTP/3,
// which is given up with the client of the first.
func TestAClientThatLeavesTakesNobodyElsesHTTP3ConnectionAlong(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, group("app", conn.LocalAddr().String()), "\tproxy_pass https://app "+ca.overHTTP3(""))
	first, second := p.dial(), p.dial()
	if err := first.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	p.waitConns(1)
	if err := second.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"); err != nil {
		t.Fatal(err)
	}
	p.waitConns(2)
	first.Close()
	p.waitConns(1)
	serveHTTP3(t, conn, cert, echo)
	if res, err := second.Receive("POST"); err != nil || res.Status != 200 || res.Text() != "hello" {
		t.Errorf("status %d, %q, %v; want the echo", res.Status, res.Text(), err)
	}
	if s := p.servers("app")[0].State; s.State != "up" || s.Failures != 0 || s.Picks != 2 {
		t.Errorf("state %+v, want up, without failures, and picked once for each client", s)
	}
	p.waitConns(0)
}

func TestAClientThatLeavesResetsTheStreamToAnHTTP3Backend(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	entered, left := make(chan struct{}, 1), make(chan struct{}, 1)
	addr, _ := startHTTP3(t, cert, func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	p := serve(t, group("app", addr), "\tproxy_pass https://app "+ca.overHTTP3(""))
	p.leaveAfter(entered)
	<-left
	if s := p.servers("app")[0].State; s.State != "up" || s.Failures != 0 {
		t.Errorf("state %+v, want up without failures", s)
	}
}

func TestReloadsLeaveNothingOfHTTP3Behind(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	addr, conns := startHTTP3(t, cert, echo)
	site := func(n int) string {
		return fmt.Sprintf("\theader X-Load %d\n\tproxy_pass https://app %s", n, ca.overHTTP3(""))
	}
	g := group("app", addr)
	p := reloadable(t, g, site(0))
	p.get("/")
	base := p.Usage()
	for n := range 5 {
		p.MustReload(config(g, site(n+1)), nil)
		if res := p.get("/"); res.Status != 200 || res.Get("X-Load") != fmt.Sprint(n+1) {
			t.Errorf("load %d: status %d, load %s", n+1, res.Status, res.Get("X-Load"))
		}
	}
	if n := conns.Load(); n != 6 {
		t.Errorf("%d connections, want one for each configuration", n)
	}
	p.waitConns(0)
	p.AssertReturnsTo(base, 30*time.Second)
}

// TestWhatABackendHasSeenIsNotSentTwice is about backends over HTTP/2 and 3 that
// break off once they have a request's header.
func TestWhatABackendHasSeenIsNotSentTwice(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	var broken, answered atomic.Int64
	breaks := func(http.ResponseWriter, *http.Request) {
		broken.Add(1)
		panic(http.ErrAbortHandler)
	}
	answers := func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		_, _ = io.WriteString(w, r.Proto)
	}
	kinds := []struct {
		name, scheme, proto, options string
		start                        func(http.HandlerFunc) string
	}{
		{"h2c", "h2c", "HTTP/2.0", "{\n", func(h http.HandlerFunc) string { return startHTTP2(t, nil, h) }},
		{"h2", "https", "HTTP/2.0", "{\n\t\thttp_version 2\n\t\ttls_trust_pool file " + ca.file + "\n", func(h http.HandlerFunc) string { return startHTTP2(t, config, h) }},
		{"h3", "https", "HTTP/3.0", "{\n\t\thttp_version 3\n\t\ttls_trust_pool file " + ca.file + "\n", func(h http.HandlerFunc) string { a, _ := startHTTP3(t, cert, h); return a }},
	}
	var groups, site string
	for _, k := range kinds {
		groups += group(k.name, k.start(breaks)+" max_fails=0", k.start(answers)+" backup")
		site += fmt.Sprintf("\n\tproxy_pass /%s/once %s://%s %s\t}\n", k.name, k.scheme, k.name, k.options)
		site += fmt.Sprintf("\n\tproxy_pass /%s/any %s://%s %s\t\tnext_upstream error timeout non_idempotent\n\t}\n", k.name, k.scheme, k.name, k.options)
	}
	p := serve(t, groups, site)
	for _, k := range kinds {
		for _, c := range []struct {
			method, path, body string
			status             int
			again              int64
		}{
			{"GET", "/once", "", 200, 1},
			{"PUT", "/once", "", 200, 1},
			{"POST", "/once", "", 502, 0},
			{"PATCH", "/once", "", 502, 0},
			{"LOCK", "/once", "", 502, 0},
			{"POST", "/once", "hello", 502, 0},
			{"POST", "/any", "", 200, 1},
		} {
			broken.Store(0)
			answered.Store(0)
			res := testnet.Do(t, c.method, p.URL("front")+"/"+k.name+c.path, nil, []byte(c.body))
			if res.Status != c.status || broken.Load() != 1 || answered.Load() != c.again || c.status == 200 && res.Text() != k.proto {
				t.Errorf("%s %s over %s with %q: status %d, %q; %d and %d requests at the servers, want %d and 1 and %d",
					c.method, c.path, k.name, c.body, res.Status, res.Text(), broken.Load(), answered.Load(), c.status, c.again)
			}
		}
	}
	p.waitConns(0)
}
