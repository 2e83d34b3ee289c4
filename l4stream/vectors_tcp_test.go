// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// tcpStep is one step of a tcp_sequence.
type tcpStep struct {
	Op      string  `json:"op"`
	N       int     `json:"n"`
	ID      string  `json:"id"`
	Server  string  `json:"server"`
	Mode    string  `json:"mode"`
	Seconds float64 `json:"seconds"`
}

// tcpCase is a case that runs.
type tcpCase struct {
	t        *testing.T
	c        *testnet.Caddy
	number   int
	front    string
	backends map[string]*greeter // by label
	labels   map[string]string   // by address
	held     map[string][]net.Conn
	ports    []string // of the clients, in order of start
}

// greeter is a server that says one byte and then only reads. When it refuses
// it keeps the connections that it has.
type greeter struct {
	addr string
	ln   net.Listener
}

func (g *greeter) listen(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	g.ln = ln
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Write([]byte("x"))
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
}

func (g *greeter) refuse() { g.ln.Close() }

func TestSessionsGoToTheServersThatNginxChooses(t *testing.T) {
	var groups, servers []string
	var cases []*tcpCase
	var list []vector
	for _, v := range vectors(t, "tcp_sequence", 25) {
		if strings.HasPrefix(v.Config.Method, "hash") {
			continue // replayed with the hash methods themselves
		}
		i := len(list)
		list = append(list, v)
		tc := &tcpCase{number: i, backends: map[string]*greeter{}, labels: map[string]string{}, held: map[string][]net.Conn{}}
		cases = append(cases, tc)
		lines := []string{"single_counts_down on"} // as nginx
		if v.Config.Method != "round_robin" {
			lines = append(lines, v.Config.Method)
		}
		for _, s := range v.Config.Servers {
			b := &greeter{addr: testnet.Reserve(t).Addr()}
			b.listen(t)
			t.Cleanup(b.refuse)
			tc.backends[s.Label], tc.labels[b.addr] = b, s.Label
			lines = append(lines, s.line(b.addr, &v.Config))
		}
		tc.labels[fmt.Sprintf("g%d", i)] = "@"
		groups = append(groups, fmt.Sprintf("upstream g%d {\n%s\n}", i, strings.Join(lines, "\n")))
		servers = append(servers, server(i, fmt.Sprintf(`127.0.0.1:{{port "p%d"}}`, i), fmt.Sprintf("proxy_pass g%d", i)))
	}
	c := testnet.StartCaddy(t, config(groups, servers), nil)
	t.Run("cases", func(t *testing.T) {
		for i, v := range list {
			t.Run(v.Name, func(t *testing.T) {
				t.Parallel()
				tc := cases[i]
				tc.t, tc.c, tc.front = t, c, c.Addr(fmt.Sprintf("p%d", i))
				tc.replay(v)
			})
		}
	})
}

func (tc *tcpCase) replay(v vector) {
	var steps []tcpStep
	decode(tc.t, v.Steps, &steps)
	var want struct{ Sessions [][2]any }
	decode(tc.t, v.Expected, &want)
	for _, step := range steps {
		tc.step(step)
	}
	for _, held := range tc.held {
		closeAll(held)
	}
	for i, port := range tc.ports {
		l := session(tc.t, tc.c, tc.number, port)
		attempts := strings.Split(l.Fields["upstream_addr"].(string), ", ")
		for j, a := range attempts {
			attempts[j] = tc.labels[a]
		}
		got := fmt.Sprint(strings.Join(attempts, ","), " ", status(l))
		if w := fmt.Sprint(want.Sessions[i][0], " ", want.Sessions[i][1]); got != w {
			tc.t.Errorf("session %d: %s, want %s", i, got, w)
		}
	}
	if len(tc.ports) != len(want.Sessions) {
		tc.t.Errorf("%d sessions, want %d", len(tc.ports), len(want.Sessions))
	}
}

func (tc *tcpCase) step(s tcpStep) {
	tc.t.Helper()
	switch s.Op {
	case "connect":
		for range s.N {
			c, port := tc.connect()
			c.Close()
			session(tc.t, tc.c, tc.number, port)
		}
	case "hold":
		for range s.N {
			c, _ := tc.connect()
			tc.held[s.ID] = append(tc.held[s.ID], c)
		}
	case "release":
		for _, c := range tc.held[s.ID] {
			port := portOf(c)
			c.Close()
			session(tc.t, tc.c, tc.number, port)
		}
		delete(tc.held, s.ID)
	case "set":
		if s.Mode == "refuse" {
			tc.backends[s.Server].refuse()
		} else {
			tc.backends[s.Server].listen(tc.t)
		}
	case "sleep":
		time.Sleep(time.Duration(s.Seconds * float64(time.Second)))
	default:
		tc.t.Fatalf("unknown step %+v", s)
	}
}

// connect opens a session and waits until a server has answered or it is
// closed.
func (tc *tcpCase) connect() (net.Conn, string) {
	tc.t.Helper()
	c, err := net.Dial("tcp", tc.front)
	if err != nil {
		tc.t.Fatal(err)
	}
	tc.ports = append(tc.ports, portOf(c))
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err != nil && !testnet.Broken(err) {
		tc.t.Fatal(err)
	}
	return c, portOf(c)
}

func portOf(c net.Conn) string {
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	return port
}

func closeAll(list []net.Conn) {
	for _, c := range list {
		c.Close()
	}
}

func TestSidesEndAsInNginx(t *testing.T) {
	list := vectors(t, "half_close", 12)
	var servers []string
	accepted := make([]chan net.Conn, len(list))
	for i, v := range list {
		accepted[i] = make(chan net.Conn, 1)
		done := make(chan struct{})
		b := testnet.NewTCP(t, func(c net.Conn, _ int) { accepted[i] <- c; <-done })
		t.Cleanup(func() { close(done) }) // before b is stopped
		onOff := map[bool]string{true: "on", false: "off"}[v.Config.HalfClose]
		servers = append(servers, server(i, fmt.Sprintf(`127.0.0.1:{{port "p%d"}}`, i),
			fmt.Sprintf("proxy_pass %s {\nhalf_close %s\n}", b.Addr(), onOff)))
	}
	c := testnet.StartCaddy(t, config(nil, servers), nil)
	for i, v := range list {
		t.Run(v.Name, func(t *testing.T) {
			client, err := net.Dial("tcp", c.Addr(fmt.Sprintf("p%d", i)))
			if err != nil {
				t.Fatal(err)
			}
			h := &halfClose{t: t, c: c, number: i}
			h.client, h.backend = h.watch(client), h.watch(<-accepted[i])
			h.replay(v)
		})
	}
}
