// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// TestManyClientsAtOnce runs requests that name what they want, over servers
// that close when they like and clients that leave: no answer may reach
// another request, every exchange ends once, and nothing is left.
func TestManyClientsAtOnce(t *testing.T) {
	echo := func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			b, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			text := req.Header.Get("X-Want") + string(b)
			switch n := rand.IntN(20); {
			case n < 8:
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			case n < 16:
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(text), text)
			case n < 17:
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", len(text), text)
			case n < 18:
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
				return
			default:
				return
			}
		}
	}
	servers := []net.Addr{rawTCP(t, echo).Addr(), rawTCP(t, echo).Addr(), rawTCP(t, echo).Addr()}
	store, n := newStore(t), 8
	var trs []*Transport
	for range 2 {
		tr := provisioned(t, new(Transport))
		if err := tr.Bind(store, exchange.Keepalive{Connections: &n, Requests: 10}); err != nil {
			t.Fatal(err)
		}
		trs = append(trs, tr)
	}
	var wg sync.WaitGroup
	var ends, begun, good atomic.Int64
	for client := range 32 {
		wg.Go(func() {
			for i := range 40 {
				want := fmt.Sprintf("client %d request %d:", client, i)
				body := strings.Repeat("x", rand.IntN(3)*20_000)
				req := request(t, "PUT", servers[rand.IntN(len(servers))], strings.NewReader(body))
				req.Header.Set("X-Want", want)
				if rand.IntN(2) == 0 {
					req.ContentLength = -1
				}
				e := newEnder()
				a := &exchange.Attempt{Ender: e}
				leave := rand.IntN(10) == 0
				if leave {
					time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, a.Abort)
				}
				res, err := trs[rand.IntN(len(trs))].Exchange(req, a)
				if err != nil {
					continue
				}
				begun.Add(1)
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err == nil && string(b) != want+body {
					t.Errorf("got another answer: %.60q, want %.60q", b, want+body)
				}
				if err == nil {
					good.Add(1)
				} else if !leave {
					t.Errorf("body: %v", err)
				}
				<-e.ch
				ends.Add(int64(e.count()))
			}
		})
	}
	wg.Wait()
	if ends.Load() != begun.Load() || good.Load() < 500 {
		t.Errorf("%d begun, %d ended, %d complete", begun.Load(), ends.Load(), good.Load())
	}
	for _, s := range trs[0].ConnStats() {
		if s.Idle > n {
			t.Errorf("%d idle to %s, want at most %d", s.Idle, s.Address, n)
		}
	}
}

func withVars(addr string) context.Context {
	vars := map[string]any{}
	if addr != "" {
		vars["reverse_proxy.proxy_protocol_info"] = reverseproxy.ProxyProtocolInfo{AddrPort: netip.MustParseAddrPort(addr)}
	}
	ctx := context.WithValue(context.Background(), caddyhttp.VarsCtxKey, vars)
	return context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 443}))
}

func TestPROXYProtocol(t *testing.T) {
	heads := make(chan string, 1)
	s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		var head strings.Builder
		for !strings.HasSuffix(head.String(), "GET ") {
			b, err := r.ReadByte()
			if err != nil {
				return
			}
			head.WriteByte(b)
		}
		heads <- strings.TrimSuffix(head.String(), "GET ")
		_, _ = io.WriteString(c, okEmpty)
	})
	const sig = "\r\n\r\n\x00\r\nQUIT\n"
	for _, tt := range []struct{ name, version, client, want string }{
		{"v1", "v1", "192.0.2.1:1234", "PROXY TCP4 192.0.2.1 192.0.2.9 1234 443\r\n"},
		{"v1, IPv6 to IPv4", "v1", "[2001:db8::1]:1234", "PROXY TCP6 2001:db8::1 :: 1234 0\r\n"},
		{"v1, mapped", "v1", "[::ffff:192.0.2.1]:1234", "PROXY TCP4 192.0.2.1 192.0.2.9 1234 443\r\n"},
		{"v1, unknown", "v1", "", "PROXY UNKNOWN\r\n"},
		{"v2", "v2", "192.0.2.1:1234", sig + "\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x09\x04\xd2\x01\xbb"},
		{"v2, unknown", "v2", "", sig + "\x20\x00\x00\x00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := provisioned(t, &Transport{ProxyProtocol: tt.version})
			for range 2 {
				a := new(exchange.Attempt)
				res, err := tr.Exchange(requestCtx(withVars(tt.client), t, "GET", s.Addr(), nil), a)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if got := <-heads; got != tt.want || a.Reused {
					t.Errorf("sent %q, reused %v, want %q", got, a.Reused, tt.want)
				}
			}
		})
	}
}

func TestBindSetsTheLocalAddress(t *testing.T) {
	from := make(chan string, 1)
	s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		from <- c.RemoteAddr().(*net.TCPAddr).IP.String()
		answering(okEmpty)(n, c, r)
	})
	get(t, provisioned(t, &Transport{BindAddress: "127.0.0.3"}), s.Addr())
	if got := <-from; got != "127.0.0.3" {
		t.Errorf("connected from %s", got)
	}
}

func TestExceptedPortsAreSpokenToInPlain(t *testing.T) {
	s := rawTCP(t, answering(okEmpty))
	_, port, _ := net.SplitHostPort(s.Addr().String())
	tr := tlsTransport(new(Transport))
	tr.TLS.ExceptPorts = []string{port}
	get(t, provisioned(t, tr), s.Addr())
}

func TestAServerNameMayBeAPlaceholder(t *testing.T) {
	ca := newAuthority(t, "a.test", "b.test")
	s := tlsServer(t, ca, nil, answering(okEmpty))
	tr := provisioned(t, trusting(ca, "{name}"))
	do := func(name string) (bool, error) {
		repl := caddy.NewReplacer()
		repl.Set("name", name)
		ctx := context.WithValue(context.Background(), caddy.ReplacerCtxKey, repl)
		a := new(exchange.Attempt)
		res, err := tr.Exchange(requestCtx(ctx, t, "GET", s.Addr(), nil), a)
		if err == nil {
			res.Body.Close()
		}
		return a.Reused, err
	}
	for _, tt := range []struct {
		name   string
		reused bool
	}{{"a.test", false}, {"b.test", false}, {"a.test", true}, {"b.test", true}} {
		if reused, err := do(tt.name); err != nil || reused != tt.reused {
			t.Errorf("%s: reused %v, %v", tt.name, reused, err)
		}
	}
	if _, err := do("c.test"); err == nil {
		t.Error("a name that is not in the certificate was accepted")
	}
}

func TestRoundTripTurnsRefusalsIntoStatuses(t *testing.T) {
	s := rawTCP(t, answering(okEmpty))
	req := request(t, "CONNECT", s.Addr(), nil)
	_, err := provisioned(t, new(Transport)).RoundTrip(req)
	var he caddyhttp.HandlerError
	if !errors.As(err, &he) || he.StatusCode != 405 {
		t.Errorf("RoundTrip() = %v, want 405", err)
	}
}
