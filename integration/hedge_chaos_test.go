// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// swing opens and shuts gates at random until stop, and leaves them open.
func swing(gates []*gate, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			for _, g := range gates {
				g.open()
			}
			return
		case <-time.After(time.Duration(rand.IntN(4000)) * time.Microsecond):
		}
		if g := gates[rand.IntN(len(gates))]; rand.IntN(2) == 0 {
			g.open()
		} else {
			g.close()
		}
	}
}

// TestNothingIsLostWhenServersConnectSlowlyAtRandom: requests and sessions are
// answered, by whomever, or given up by their clients, and in the end nothing is
// left of any of them.
func TestNothingIsLostWhenServersConnectSlowlyAtRandom(t *testing.T) {
	t.Parallel()
	b, webGates := gated(t, 4)
	l, tcpGates := gatedLines(t, 4)
	gates := append(webGates[:3:3], tcpGates[:3]...) // the last of each is always open
	var web, tcp []string
	for i := range b {
		web, tcp = append(web, b[i].Addr()), append(tcp, l[i].Addr())
	}
	const options = "{\nconnect_hedge 3ms\n"
	p := serve(t, group("web", web...)+group("tcp", tcp...)+
		"\tstream {\nserver "+front("lines")+" {\nproxy_pass tcp "+options+"ssl_insecure_skip_verify\n}\n}\n}\n",
		"\tproxy_pass https://web "+options+"tls_insecure_skip_verify\nkeepalive off\n}")
	for _, g := range append(webGates, tcpGates...) {
		g.open()
	}
	answer := func(i int) error {
		body := strings.Repeat("x", rand.IntN(40_000))
		c, err := testnet.Dial(p.Addr("front"))
		if err != nil {
			return err
		}
		defer c.Close()
		head := fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", i, len(body))
		if err := c.Send(head + body); err != nil {
			return err
		}
		if i%3 == 0 { // the client leaves
			time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond)
			return nil
		}
		res, err := c.Receive("POST")
		if err == nil && res.Status != 200 {
			err = fmt.Errorf("status %d", res.Status)
		}
		return err
	}
	line := func() error {
		c, err := net.DialTimeout("tcp", p.Addr("lines"), 30*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		if _, err := c.Write([]byte("hello\n")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 64))
		return err
	}
	for i := range 8 {
		if err := answer(i*3 + 1); err != nil {
			t.Fatal(err)
		}
		if err := line(); err != nil {
			t.Fatal(err)
		}
	}
	p.waitConns(0)
	base := p.Usage()
	stop := make(chan struct{})
	var swinging, asking sync.WaitGroup
	swinging.Go(func() { swing(gates, stop) })
	var n atomic.Int64
	for range 8 {
		asking.Go(func() {
			for i := n.Add(1); i <= 150; i = n.Add(1) {
				if err := answer(int(i)); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
				if err := line(); err != nil {
					t.Errorf("session %d: %v", i, err)
				}
			}
		})
	}
	asking.Wait()
	close(stop)
	swinging.Wait()
	p.quiet(base)
	tried := 0
	for _, g := range []string{"web", "tcp"} {
		for _, s := range p.servers(g) {
			tried += s.State.Picks
			if s.State.Failures != 0 {
				t.Errorf("%s: %d failures, want none", s.Address, s.State.Failures)
			}
		}
	}
	if tried < 330 {
		t.Errorf("%d servers were asked for 300 requests and sessions: hardly any hedge", tried)
	}
}
