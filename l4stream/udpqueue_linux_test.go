// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// relayUDP listens and passes datagrams on to a server.
func relayUDP(t testing.TB, server net.Addr) *socket {
	t.Helper()
	na, err := caddy.ParseNetworkAddress("udp/127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := address{na}
	p := &ProxyPass{Timeout: caddy.Duration(time.Minute)}
	v := udpServers("relay", false)
	v.list[0].phases[Content] = []Handler{handle(func(s *Session) error { return p.serveUDP(s, nil, server.String()) })}
	s, err := listen(a, v)
	if err != nil {
		t.Fatal(err)
	}
	s.push(v)
	t.Cleanup(func() {
		if err := s.Destruct(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func udpBackend(t testing.TB) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func dialUDP(t testing.TB, address string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.UDPConn)
}

// What several clients send at the same time is read in one batch and sent on
// client by client.
func TestBurstsOfSeveralClientsReachTheServerInTheirOrder(t *testing.T) {
	server := udpBackend(t)
	address := relayUDP(t, server.LocalAddr()).udp.local.Addr.String()
	const clients, rounds, burst = 5, 10, 12
	var conns []*net.UDPConn
	for range clients {
		conns = append(conns, dialUDP(t, address))
	}
	next := make([]int, clients)
	ports := make([]string, clients)
	buf := make([]byte, 100)
	for round := range rounds {
		for i := range burst {
			for client, c := range conns {
				// Of different sizes, as some can be sent together and some cannot.
				if _, err := fmt.Fprintf(c, "%d %d %0*d", client, round*burst+i, 1+i/5, 7); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range burst * clients {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				t.Fatal(err)
			}
			var client, number, filler int
			if _, err := fmt.Sscan(string(buf[:n]), &client, &number, &filler); err != nil {
				t.Fatalf("%q: %v", buf[:n], err)
			}
			if number != next[client] {
				t.Fatalf("number %d of client %d has come, want %d", number, client, next[client])
			}
			next[client]++
			if ports[client] == "" {
				ports[client] = from.String()
			}
			if ports[client] != from.String() {
				t.Fatalf("client %d comes from %s and from %s", client, ports[client], from)
			}
		}
	}
}
