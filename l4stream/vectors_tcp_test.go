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
	Op      string `json:"op"`
	N       int    `json:"n"`
	Keys    []string
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
	lines    []string            // of the group
	keyed    bool                // the client's key is in a PROXY header
	taken    error               // an address that has to be this one is not free
	held     map[string][]net.Conn
	ports    []string // of the clients, in order of start
}

func newTCPCase(t *testing.T, number int, c *vectorConfig) *tcpCase {
	tc := &tcpCase{number: number, backends: map[string]*greeter{}, labels: map[string]string{}, held: map[string][]net.Conn{}}
	tc.lines = []string{"single_counts_down on"} // as nginx
	for _, s := range c.Servers {
		b := &greeter{addr: s.Server}
		if b.addr == "" {
			b.addr = testnet.Reserve(t).Addr()
		}
		// Others may need the same port for their cases.
		var err error
		if !testnet.Poll(30*time.Second, func() bool { err = b.listen(); return err == nil }) {
			tc.taken = err
		}
		t.Cleanup(b.refuse)
		tc.backends[s.Label], tc.labels[b.addr] = b, s.Label
		tc.lines = append(tc.lines, s.line(b.addr, c))
	}
	tc.labels[fmt.Sprintf("g%d", number)] = "@"
	tc.keyed = c.Key != ""
	switch c.Method {
	case "round_robin":
	case "hash", "hash consistent":
		_, consistent, _ := strings.Cut(c.Method, "hash")
		tc.lines = append(tc.lines, "hash {stream.proxy_protocol_addr}"+consistent)
	default:
		tc.lines = append(tc.lines, c.Method)
	}
	return tc
}

// greeter is a server that says one byte and then only reads. When it refuses
// it keeps the connections that it has.
type greeter struct {
	addr string
	ln   net.Listener
}

func (g *greeter) listen() error {
	ln, err := net.Listen("tcp", g.addr)
	if err != nil {
		return err
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
	return nil
}

func (g *greeter) refuse() {
	if g.ln != nil {
		g.ln.Close()
	}
}

func TestSessionsGoToTheServersThatNginxChooses(t *testing.T) {
	var groups, servers []string
	var cases []*tcpCase
	list := vectors(t, "tcp_sequence", 25)
	for i, v := range list {
		tc := newTCPCase(t, i, &v.Config)
		cases = append(cases, tc)
		groups = append(groups, fmt.Sprintf("upstream g%d {\n%s\n}", i, strings.Join(tc.lines, "\n")))
		lines := []string{fmt.Sprintf("proxy_pass g%d", i)}
		if tc.keyed {
			lines = append(lines, "proxy_protocol require")
		}
		servers = append(servers, server(i, fmt.Sprintf(`127.0.0.1:{{port "p%d"}}`, i), lines...))
	}
	c := testnet.StartCaddy(t, config(groups, servers), nil)
	t.Run("cases", func(t *testing.T) {
		for i, v := range list {
			t.Run(v.Name, func(t *testing.T) {
				t.Parallel()
				tc := cases[i]
				if tc.taken != nil {
					testnet.Missing(t, tc.taken.Error())
				}
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
			c, port := tc.connect("")
			c.Close()
			session(tc.t, tc.c, tc.number, port)
		}
	case "connect_keys":
		for _, key := range s.Keys {
			c, port := tc.connect(key)
			c.Close()
			session(tc.t, tc.c, tc.number, port)
		}
	case "hold":
		for i := range s.N {
			key := ""
			if tc.keyed {
				key = fmt.Sprintf("192.0.2.%d", i+1) // the recording's
			}
			c, _ := tc.connect(key)
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
			if err := tc.backends[s.Server].listen(); err != nil {
				tc.t.Fatal(err)
			}
		}
	case "sleep":
		time.Sleep(time.Duration(s.Seconds * float64(time.Second)))
	default:
		tc.t.Fatalf("unknown step %+v", s)
	}
}

// connect opens a session and waits until a server has answered or it is
// closed. A key is the client's address in a PROXY header.
func (tc *tcpCase) connect(key string) (net.Conn, string) {
	tc.t.Helper()
	c, err := net.Dial("tcp", tc.front)
	if err != nil {
		tc.t.Fatal(err)
	}
	tc.ports = append(tc.ports, portOf(c))
	switch {
	case strings.Contains(key, ":"):
		fmt.Fprintf(c, "PROXY TCP6 %s ::1 1 2\r\n", key)
	case key != "":
		fmt.Fprintf(c, "PROXY TCP4 %s 127.0.0.1 1 2\r\n", key)
	case tc.keyed:
		fmt.Fprint(c, "PROXY UNKNOWN\r\n")
	}
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
