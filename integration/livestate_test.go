// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// live is what the API says of the servers of a group, whole.
func (p *proxy) live(group string) []upstream.ServerState {
	p.t.Helper()
	var out []upstream.ServerState
	p.api("/upstream/groups/"+group+"/servers", &out)
	return out
}

// CASES 49.
func TestTheLiveStateCountsWhatBecameOfRequests(t *testing.T) {
	t.Parallel()
	good := testnet.NewBackend(t, testnet.Answer{Body: strings.Repeat("x", 1000)})
	bad := testnet.NewBackend(t, testnet.Answer{Status: 503, Body: "no"})
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", dead+" max_fails=0", bad.Addr()+" max_fails=0", good.Addr(), "keepalive 8"),
		"\tproxy_pass app {\n\t\tnext_upstream error timeout http_503\n\t}")
	const n = 9
	for range n {
		if got := p.get("/"); got.Status != 200 {
			t.Fatalf("status %d", got.Status)
		}
	}
	var picks, retries uint64
	s := p.live("app")
	for _, x := range s {
		picks, retries = picks+x.State.Picks, retries+x.State.Retries
	}
	if picks-retries != n || retries == 0 {
		t.Errorf("%d picks less %d retries, want %d requests", picks, retries, n)
	}
	if x := s[0].State; x.Reasons["error"] != x.Failures || x.Failures == 0 || x.Responses != nil || x.HeaderTime != nil || x.Sent != 0 {
		t.Errorf("the dead server: %+v", x)
	}
	if x := s[1].State; x.Reasons["http_503"] != x.Failures || x.Responses["5xx"] != x.Picks || x.LastFailure == nil || x.LastError != "status 503" {
		t.Errorf("the server that answers 503: %+v", x)
	}
	x := s[2].State
	if x.Responses["2xx"] != n || x.Received < n*1000 || x.Sent < n*20 || x.Selected == nil || x.Failures != 0 {
		t.Errorf("the good server: %+v", x)
	}
	if x.HeaderTime == nil || x.HeaderTime.Count != n || x.ResponseTime == nil || x.ResponseTime.Count != n || x.ResponseTime.P99 <= 0 || x.ResponseTime.P50 > x.ResponseTime.P99 {
		t.Errorf("times of the good server: %+v, %+v", x.HeaderTime, x.ResponseTime)
	}
	if x.Keepalive == nil || x.Keepalive.Created != 1 || x.Keepalive.Reused != n-1 || x.Keepalive.Idle != 1 {
		t.Errorf("connections to the good server: %+v, want one, reused", x.Keepalive)
	}
}

func TestTheLiveStateCountsStreamSessions(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
			_ = c.Close()
		}
	}()
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("db", dead, ln.Addr().String())+
		"\tstream {\n\t\tserver 127.0.0.1:{{port \"stream\"}} {\n\t\t\tproxy_pass db\n\t\t}\n\t}\n", "\trespond hello")
	for range 3 {
		c, err := net.Dial("tcp", p.Addr("stream"))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		if n, _ := c.Read(b); string(b[:n]) != "hello" {
			t.Errorf("read %q", b[:n])
		}
		c.Close()
	}
	p.waitConns(0)
	s := p.live("db")
	if x := s[0].State; x.Reasons["error"] != 1 || x.Sessions != 0 {
		t.Errorf("the dead server: %+v", x)
	}
	if x := s[1].State; x.Sessions != 3 || x.Received != 15 || x.HeaderTime == nil || x.ResponseTime == nil || x.Retries != 1 {
		t.Errorf("the server: %+v", x)
	}
}
