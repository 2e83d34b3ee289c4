// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// udpCase is a case of kind udp that runs.
type udpCase struct {
	t       *testing.T
	c       *testnet.Caddy
	number  int
	labels  map[string]string       // by address
	sockets map[string]*net.UDPConn // of the backends, by label
	clients map[string]*net.UDPConn

	mu     sync.Mutex // guards what follows
	events []string   // what has happened and was not asked for yet
	ups    []upstreamSession
	logged int
}

// upstreamSession is one source port at a backend.
type upstreamSession struct {
	backend *net.UDPConn
	from    *net.UDPAddr
}

type udpResult struct {
	Backend, Client, Ended [][]any
}

func newUDPCase(t *testing.T, i int, v vector) (tc *udpCase, group, stream string) {
	tc = &udpCase{number: i, labels: map[string]string{"": "-"}, sockets: map[string]*net.UDPConn{}, clients: map[string]*net.UDPConn{}}
	listen := fmt.Sprintf("udp/127.0.0.1:%d", testnet.FreeUDPPort(t))
	if v.Config.ReturnText != "" {
		text := strings.ReplaceAll(v.Config.ReturnText, "$remote_addr", "{stream.remote_addr}")
		return tc, "", server(i, listen, fmt.Sprintf("return %q", text))
	}
	var lines []string
	for _, s := range v.Config.Servers {
		local := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: testnet.FreeUDPPort(t)}
		tc.labels[local.String()] = s.Label
		lines = append(lines, s.line(local.String(), &v.Config))
		if s.Refuses {
			continue
		}
		conn, err := net.ListenUDP("udp", local)
		if err != nil {
			t.Fatal(err)
		}
		tc.sockets[s.Label] = conn
		t.Cleanup(func() { conn.Close() })
	}
	var options []string
	if v.Config.ProxyTimeout != "" {
		options = append(options, "timeout "+v.Config.ProxyTimeout)
	}
	for name, n := range map[string]*int{"proxy_requests": v.Config.ProxyRequests, "proxy_responses": v.Config.ProxyResponses} {
		if n != nil {
			options = append(options, fmt.Sprintf("%s %d", name, *n))
		}
	}
	group = fmt.Sprintf("upstream u%d {\n%s\n}", i, strings.Join(lines, "\n"))
	return tc, group, server(i, listen, fmt.Sprintf("proxy_pass u%d {\n%s\n}", i, strings.Join(options, "\n")))
}

func TestDatagramsGoWhereNginxSendsThem(t *testing.T) {
	var groups, servers []string
	var cases []*udpCase
	list := vectors(t, "udp", 14)
	for i, v := range list {
		tc, group, stream := newUDPCase(t, i, v)
		cases, groups, servers = append(cases, tc), append(groups, group), append(servers, stream)
	}
	c := testnet.StartCaddy(t, config(groups, servers), nil)
	for i, v := range list {
		t.Run(v.Name, func(t *testing.T) {
			tc := cases[i]
			tc.t, tc.c = t, c
			_, address, _ := strings.Cut(servers[i], "udp/")
			address, _, _ = strings.Cut(address, " ")
			tc.replay(v, address)
		})
	}
}

func (tc *udpCase) replay(v vector, front string) {
	for label, conn := range tc.sockets {
		go tc.serve(label, conn)
	}
	var steps [][]any
	decode(tc.t, v.Steps, &steps)
	var want struct{ Results []udpResult }
	decode(tc.t, v.Expected, &want)
	if strings.HasPrefix(v.Name, "udp 20") {
		// On purpose a session whose server refuses ends at once, so that the
		// client's next datagram goes elsewhere; nginx waits for the timeout.
		ended := &want.Results[2].Ended
		want.Results[0].Ended, *ended = (*ended)[:1], (*ended)[1:]
	}
	for i, step := range steps {
		tc.do(step, front)
		tc.expect(i, step, &want.Results[i])
	}
}

// serve records what comes to a backend.
func (tc *udpCase) serve(label string, conn *net.UDPConn) {
	buf := make([]byte, 2000)
	for {
		n, from, err := conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		tc.mu.Lock()
		number := slices.IndexFunc(tc.ups, func(u upstreamSession) bool { return u.from.Port == from.Port }) + 1
		if number == 0 {
			tc.ups = append(tc.ups, upstreamSession{conn, from})
			number = len(tc.ups)
		}
		tc.events = append(tc.events, fmt.Sprint("backend ", []any{label, number, string(buf[:n])}))
		tc.mu.Unlock()
	}
}

func (tc *udpCase) client(name, front string) *net.UDPConn {
	if c := tc.clients[name]; c != nil {
		return c
	}
	conn, err := net.Dial("udp", front)
	if err != nil {
		tc.t.Fatal(err)
	}
	tc.t.Cleanup(func() { conn.Close() })
	c := conn.(*net.UDPConn)
	tc.clients[name] = c
	go func() {
		buf := make([]byte, 2000)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			tc.mu.Lock()
			tc.events = append(tc.events, fmt.Sprint("client ", []any{name, string(buf[:n])}))
			tc.mu.Unlock()
		}
	}()
	return c
}

func (tc *udpCase) do(step []any, front string) {
	switch step[0] {
	case "send":
		if _, err := tc.client(step[1].(string), front).Write([]byte(step[2].(string))); err != nil {
			tc.t.Fatal(err)
		}
	case "reply":
		tc.mu.Lock()
		up := tc.ups[int(step[1].(float64))-1]
		tc.mu.Unlock()
		_, _ = up.backend.WriteToUDP([]byte(step[2].(string)), up.from)
	case "wait_ms":
	default:
		tc.t.Fatalf("unknown step %v", step)
	}
}

// ends turns new lines of the access log into events.
func (tc *udpCase) ends() {
	lines := sessions(tc.c, tc.number)
	for _, l := range lines[tc.logged:] {
		client := "?"
		for name, c := range tc.clients {
			if portOf(c) == l.Fields["remote_port"] {
				client = name
			}
		}
		attempts := strings.Split(l.Fields["upstream_addr"].(string), ", ")
		for i, a := range attempts {
			attempts[i] = tc.labels[a]
		}
		tc.events = append(tc.events, fmt.Sprint("ended ", []any{
			client, strings.Join(attempts, ","), status(l), number(l, "bytes_received"), number(l, "bytes_sent"),
		}))
	}
	tc.logged = len(lines)
}

// expect waits for what shall follow a step, and for a moment for what shall
// not.
func (tc *udpCase) expect(i int, step []any, r *udpResult) {
	tc.t.Helper()
	var want []string
	for what, list := range map[string][][]any{"backend ": r.Backend, "client ": r.Client, "ended ": r.Ended} {
		for _, e := range list {
			want = append(want, fmt.Sprint(what, e))
		}
	}
	slices.Sort(want)
	var got []string
	deadline := time.Now().Add(10 * time.Second)
	for {
		tc.mu.Lock()
		tc.ends()
		got = slices.Sorted(slices.Values(tc.events))
		tc.mu.Unlock()
		if len(got) >= len(want) || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	pause := 40 * time.Millisecond // between two events, as in the recording
	if step[0] == "wait_ms" && len(want) == 0 {
		pause = time.Duration(step[1].(float64)) * time.Millisecond
	}
	time.Sleep(pause)
	tc.mu.Lock()
	tc.ends()
	got = slices.Sorted(slices.Values(tc.events))
	tc.events = nil
	tc.mu.Unlock()
	if !slices.Equal(got, want) {
		tc.t.Fatalf("after step %d %v: %q, want %q", i+1, step, got, want)
	}
}
