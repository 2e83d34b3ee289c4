// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// shortDir is a folder whose path leaves room for the name of a Unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestStreamAccessAndReturn(t *testing.T) {
	dir := shortDir(t)
	p := serveStream(t, "", `
		server `+front("allowed")+` {
			allow 127.0.0.0/8
			deny all
			return "hello {stream.remote_addr} on {stream.server_port}"
		}
		server `+front("denied")+` unix/`+dir+`/front {
			allow unix
			deny 127.0.0.1
			return "hello {stream.remote_addr}"
			access_log
		}
		server `+front("empty")+` {
			return ""
		}`)
	_, port, _ := net.SplitHostPort(p.Addr("allowed"))
	if got, want := p.tcp("allowed").rest(), "hello 127.0.0.1 on "+port; got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	denied := p.tcp("denied")
	if got := denied.rest(); got != "" {
		t.Errorf("who is denied got %q", got)
	}
	if l := p.ended(denied); !l.Has(map[string]any{"status": 403, "bytes_sent": 0}) {
		t.Errorf("who is denied: %v", l.Fields)
	}
	if got := open(t, "unix", dir+"/front").rest(); got != "hello unix:" {
		t.Errorf("over a unix socket the answer is %q", got)
	}
	if got := p.tcp("empty").rest(); got != "" {
		t.Errorf("an empty text is %q", got)
	}
}

func TestStreamLimitConnCountsSessionsByKey(t *testing.T) {
	b := testnet.NewLines(t, "")
	servers := `
		server ` + front("one") + ` {
			limit_conn 2 {
				zone z
			}
			proxy_pass ` + b.Addr() + `
			access_log {
				field limit {stream.limit_conn_status}
			}
		}
		server ` + front("two") + ` {
			limit_conn 2 {
				zone z
			}
			proxy_pass ` + b.Addr() + `
			access_log
		}
		server ` + front("dry") + ` {
			limit_conn "always" 1 {
				dry_run
			}
			proxy_pass ` + b.Addr() + `
		}`
	p := serveStream(t, "", servers)
	first := p.tcp("one")
	first.ask("hello")
	p.MustReload(streamConfig("", servers), nil) // the counters live on
	p.tcp("two").ask("hello")
	third := p.tcp("one")
	if got := third.rest(); got != "" {
		t.Errorf("a third session got %q", got)
	}
	if l := p.ended(third); !l.Has(map[string]any{"status": 503, "limit": "REJECTED"}) {
		t.Errorf("a third session: %v", l.Fields)
	}
	first.Close()
	p.ended(first)
	p.tcp("one").ask("hello")
	for range 3 {
		p.tcp("dry").ask("hello")
	}
	const msg = "limiting connections, dry run"
	testnet.Eventually(t, 10*time.Second, "two dry runs in the log", func() bool { return len(p.Logs(msg)) >= 2 })
	if n := len(p.Logs(msg)); n != 2 {
		t.Errorf("%d dry runs were logged, want 2", n)
	}
}

func TestStreamPassHandsConnectionsOn(t *testing.T) {
	b := testnet.NewLines(t, "")
	p := start(t, `{
	debug
	persist_config off
	skip_install_trust
	servers :{{port "http"}} {
		listener_wrappers {
			stream_pass
		}
	}
	stream {
		server `+front("front")+` {
			ssl_preread
			pass `+front("inner")+`
		}
		server `+front("inner")+` {
			proxy_pass `+b.Addr()+`
			access_log
		}
		server `+front("toHTTP")+` {
			pass `+front("http")+`
		}
		server `+front("loop")+` {
			pass `+front("loop")+`
			access_log
		}
		server `+front("nobody")+` {
			pass 127.0.0.1:1
			access_log
		}
	}
}
http://`+front("http")+` {
	respond "hello {remote_host} {http.request.remote.port}"
}
`)
	s := p.tcp("front")
	if got, want := s.ask("hello"), fmt.Sprintf("%d HELLO", b.Port()); got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	s.Close()
	if l := p.ended(s); !l.Has(map[string]any{"remote_addr": "127.0.0.1", "status": 200, "bytes_received": 6}) {
		t.Errorf("the inner server logs %v", l.Fields)
	}
	for range 2 {
		c, err := testnet.Dial(p.Addr("toHTTP"))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(c.Conn.LocalAddr().String())
		res, err := c.Do("GET", "/", []string{"Host: " + p.Addr("http")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := res.Text(), "hello 127.0.0.1 "+port; got != want {
			t.Errorf("HTTP answers %q, want %q", got, want)
		}
		c.Close()
	}
	if res := testnet.Get(t, "http://"+p.Addr("http")+"/"); res.Status != 200 {
		t.Errorf("the wrapped listener itself answers %q", res.Line)
	}
	loop := p.tcp("loop")
	if got := loop.rest(); got != "" {
		t.Errorf("a loop got %q", got)
	}
	p.WaitLog(t, "session", map[string]any{"remote_port": loop.port(), "status": 500})
	nobody := p.tcp("nobody")
	nobody.rest()
	if l := p.ended(nobody); !l.Has(map[string]any{"status": 200}) {
		t.Errorf("nobody listens: %v", l.Fields)
	}
}

func TestStreamGroupsAndAddressesFromPlaceholders(t *testing.T) {
	a, b := testnet.NewLines(t, ""), testnet.NewLines(t, "")
	p := serveStream(t, group("a", a.Addr())+group("b", b.Addr()), `
		server `+front("front")+` {
			proxy_protocol
			map {stream.proxy_protocol_addr} target {
				192.0.2.1 a
				192.0.2.2 b
				192.0.2.3 `+a.Addr()+`
				192.0.2.4 /run/secret.sock
				default nowhere
			}
			proxy_pass {stream.vars.target}
			access_log
		}
		server `+front("dynamic")+` {
			proxy_protocol
			map {stream.proxy_protocol_addr} target {
				192.0.2.1 `+b.Addr()+`
				192.0.2.2 10.0.0.1:80
				default unix//run/x.sock
			}
			proxy_pass {stream.vars.target} {
				allow_dynamic 127.0.0.0/8
			}
			access_log
		}`)
	cases := []struct {
		front, client string
		backend       *testnet.Lines
	}{
		{"front", "192.0.2.1", a}, {"front", "192.0.2.2", b}, {"front", "192.0.2.3", nil}, {"front", "192.0.2.4", nil}, {"front", "192.0.2.5", nil},
		{"dynamic", "192.0.2.1", b}, {"dynamic", "192.0.2.2", nil}, {"dynamic", "192.0.2.3", nil},
	}
	for _, c := range cases {
		s := p.tcp(c.front)
		s.say("PROXY TCP4 " + c.client + " 192.0.2.9 1 2\r\n")
		if c.backend != nil {
			if got, want := s.ask("hello"), fmt.Sprintf("%d HELLO", c.backend.Port()); got != want {
				t.Errorf("%s %s: %q, want %q", c.front, c.client, got, want)
			}
			continue
		}
		if got := s.rest(); got != "" {
			t.Errorf("%s %s: %q, want nothing", c.front, c.client, got)
		}
		if l := p.ended(s); !l.Has(map[string]any{"status": 500}) {
			t.Errorf("%s %s: %v", c.front, c.client, l.Fields)
		}
	}
}

func TestStreamListensOnRangesUnixSocketsAndIPv6(t *testing.T) {
	dir := shortDir(t)
	a := testnet.NewLinesOn(t, func() (net.Listener, error) { return net.Listen("unix", dir+"/backend") }, "")
	low := testnet.ReserveTwo(t)
	p := serveStream(t, group("local", "server unix/"+dir+"/backend"), fmt.Sprintf(`
		server 127.0.0.1:%d-%d [::1]:%d unix/%s/front {
			proxy_pass local
		}`, low, low+1, low, dir))
	want := "0 HELLO"
	for network, addr := range map[string]string{
		"tcp": fmt.Sprintf("127.0.0.1:%d", low), "tcp4": fmt.Sprintf("127.0.0.1:%d", low+1),
		"tcp6": fmt.Sprintf("[::1]:%d", low), "unix": dir + "/front",
	} {
		if got := open(t, network, addr).ask("hello"); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	if n := len(a.Received()); n != 4 {
		t.Errorf("the backend got %d lines, want 4", n)
	}
	p.waitConns(4)
}

func TestStreamTLSIsTerminatedAndBegun(t *testing.T) {
	b := testnet.NewLines(t, "")
	p := serveStream(t, group("inner", front("inner")), `
		server `+front("front")+` {
			tls localhost {
				connection_policy {
					alpn one two
				}
			}
			proxy_pass `+b.Addr()+`
			access_log {
				field name {stream.ssl_server_name}
				field version {stream.ssl_protocol}
				field alpn {stream.ssl_alpn_protocol}
			}
		}
		server `+front("client")+` {
			proxy_pass `+front("front")+` {
				ssl
				ssl_name localhost
				ssl_alpn two
				ssl_insecure_skip_verify
			}
			access_log
		}
		server `+front("verify")+` {
			proxy_pass `+front("front")+` {
				ssl_name localhost
				connect_timeout 5s
			}
			access_log
		}`)
	want := fmt.Sprintf("%d HELLO", b.Port())
	var c *tls.Conn
	testnet.Eventually(t, 20*time.Second, "a certificate", func() bool {
		var err error
		c, err = tls.Dial("tcp", p.Addr("front"), &tls.Config{ServerName: "localhost", InsecureSkipVerify: true, NextProtos: []string{"one"}})
		return err == nil
	})
	s := newSession(t, c)
	if got := s.ask("hello"); got != want {
		t.Errorf("the answer over TLS is %q, want %q", got, want)
	}
	s.Close()
	if l := p.ended(s); !l.Has(map[string]any{"name": "localhost", "version": "TLSv1.3", "alpn": "one", "bytes_received": 6}) {
		t.Errorf("the access log says %v", l.Fields)
	}
	for range 2 { // the second resumes the session
		if got := p.tcp("client").ask("hello"); got != want {
			t.Errorf("the answer through TLS to the upstream is %q, want %q", got, want)
		}
	}
	bad := p.tcp("verify")
	if got := bad.rest(); got != "" {
		t.Errorf("an upstream that is not trusted answered %q", got)
	}
	if l := p.ended(bad); !l.Has(map[string]any{"status": 502}) {
		t.Errorf("an upstream that is not trusted: %v", l.Fields)
	}
	plain := p.tcp("front")
	plain.say("this is no TLS\n")
	plain.rest()
	if l := p.ended(plain); !l.Has(map[string]any{"status": 500}) {
		t.Errorf("a client without TLS: %v", l.Fields)
	}
}

// A handshake that is never made, a hello that never ends, silence: each is
// ended by its own timeout and logged once.
func TestStreamSilentClientsCostLittleAndAreLoggedOnce(t *testing.T) {
	b := testnet.NewLines(t, "")
	p := serveStream(t, "", `
		server `+front("hello")+` {
			ssl_preread
			preread_timeout 3s
			proxy_pass `+b.Addr()+`
		}
		server `+front("proxy")+` {
			proxy_protocol require {
				timeout 3s
			}
			proxy_pass `+b.Addr()+`
		}
		server `+front("tls")+` {
			tls localhost {
				handshake_timeout 3s
			}
			proxy_pass `+b.Addr()+`
		}`)
	base := p.Usage()
	lines := len(p.Lines())
	const each = 300
	var all []*session
	for _, name := range []string{"hello", "proxy", "tls"} {
		for range each {
			s := p.tcp(name)
			all = append(all, s)
			if name != "tls" {
				s.say(map[string]string{"hello": "\x16\x03\x01\x40", "proxy": "PROX"}[name])
			}
		}
	}
	for _, s := range all {
		s.rest()
	}
	p.AssertReturnsTo(base, 20*time.Second)
	n := 0
	for _, l := range p.Lines()[lines:] {
		if l.Fields["level"] != "debug" {
			n++
		}
	}
	if n > 3*each {
		t.Errorf("%d silent clients made %d lines of log", 3*each, n)
	}
}

func TestStreamHelloMayBeSplitAnywhere(t *testing.T) {
	b := testnet.NewTCP(t, func(c net.Conn, _ int) {
		buf := make([]byte, 1<<16)
		n, _ := c.Read(buf)
		for n < 250 {
			m, err := c.Read(buf[n:])
			if err != nil {
				return
			}
			n += m
		}
		fmt.Fprintf(c, "%d\n", n)
	})
	p := serveStream(t, group("named", b.Addr()), `
		server `+front("front")+` {
			ssl_preread
			map {stream.ssl_preread_server_name} target {
				split.example.com named
			}
			proxy_pass {stream.vars.target}
		}`)
	hello := clientHello(t, "split.example.com")
	for i := 1; i < len(hello); i++ {
		c, err := net.Dial("tcp", p.Addr("front"))
		if err != nil {
			t.Fatal(err)
		}
		s := &session{Conn: c, t: t}
		s.say(string(hello[:i]))
		time.Sleep(time.Millisecond)
		s.say(string(hello[i:]))
		got := newSession(t, c).line()
		if want := fmt.Sprint(len(hello)); got != want {
			t.Fatalf("split at %d: %s bytes came, want %s", i, got, want)
		}
		c.Close()
	}
}

// clientHello is what Go's client sends first.
func clientHello(t *testing.T, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name, CurvePreferences: []tls.CurveID{tls.X25519}}).Handshake()
	}()
	buf := make([]byte, 1<<14)
	n, err := server.Read(buf)
	if err != nil || !strings.Contains(string(buf[:n]), name) {
		t.Fatalf("the hello is %q: %v", buf[:n], err)
	}
	return buf[:n]
}
