// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// The cases in upstreamkeepalive's testdata/keepalive.json were recorded from
// nginx 1.31.5: over which connections requests arrive, and which are open
// afterwards. Its own test replays what concerns the transport; here they run
// through all of Caddy, with two routes to one group as nginx's two locations,
// and with failures and further tries decided by next_upstream.

// keepaliveLeftOut are the cases that cannot be as recorded, and why.
var keepaliveLeftOut = map[string]string{
	"ka 032: HEAD, framing head_body": "nginx overlooks a body after the answer to HEAD that comes with the header; we close such a connection",
}

// keepaliveCase is a recorded case.
type keepaliveCase struct {
	Name   string
	Config struct {
		Keepalive         *string
		KeepaliveRequests string `json:"keepalive_requests"`
		KeepaliveTime     string `json:"keepalive_time"`
		KeepaliveTimeout  string `json:"keepalive_timeout"`
		HTTPVersion       string `json:"http_version"`
		NextUpstream      string `json:"next_upstream"`
		NextUpstreamTries string `json:"next_upstream_tries"`
		MaxFails          string `json:"max_fails"`
		FailTimeout       string `json:"fail_timeout"`
		SetConnection     string `json:"set_connection"`
		Servers           []struct{ Label string }
	}
	Steps []struct {
		Op, ID, Method, Body string
		Location, N, MS      int
		Order                []int
		Upgrade              bool
		Response             oneOrMore
	}
	Expected struct {
		Results []struct {
			Status         int
			Arrived        []arrival
			UpstreamAddr   string  `json:"upstream_addr"`
			UpstreamStatus string  `json:"upstream_status"`
			OpenAfter      *string `json:"open_after"`
		}
	}

	group   string
	servers map[string]*testnet.Backend

	mu       sync.Mutex // guards what follows
	script   []string   // of the current request
	arrived  []arrival
	requests map[string]int  // by connection
	held     []chan struct{} // nil: requests are answered at once
	holding  bool
}

// arrival is a request at a server: which connection, which request on it.
type arrival struct {
	Server       string
	Conn, Number int
}

func (a *arrival) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&a.Server, &a.Conn, &a.Number})
}

// oneOrMore is a string or a list.
type oneOrMore []string

func (o *oneOrMore) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(string(text), "[") {
		return json.Unmarshal(text, (*[]string)(o))
	}
	*o = make([]string, 1)
	return json.Unmarshal(text, &(*o)[0])
}

// serve chooses the answer to a request that has arrived.
func (c *keepaliveCase) serve(label string, r testnet.Request) testnet.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := fmt.Sprint(label, r.Conn)
	c.requests[conn]++
	c.arrived = append(c.arrived, arrival{label, r.Conn, c.requests[conn]})
	framing := "cl"
	if n := len(c.script); n > 0 {
		framing = c.script[min(len(c.arrived), n)-1]
	}
	a := framed(framing, r.Method() == "HEAD")
	if c.holding {
		hold := make(chan struct{})
		c.held = append(c.held, hold)
		a.Hold = hold
	}
	return a
}

// framed is the answer of a recorded framing.
func framed(framing string, head bool) testnet.Answer {
	const ok, hello = "HTTP/1.1 200 OK\r\n", "Content-Length: 5\r\n\r\nhello"
	chunk := "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
	status, body := ok, hello
	end := testnet.Persist
	switch framing {
	case "cl":
	case "cl0":
		body = "Content-Length: 0\r\n\r\n"
	case "cl0_extra":
		body = "Content-Length: 0\r\n\r\nextra"
	case "extra":
		body += "extra"
	case "chunked":
		body = chunk + "\r\n"
	case "chunked_trailer":
		body = chunk + "X-Trailer: 1\r\n\r\n"
	case "chunked_extra":
		body = chunk + "\r\nextra"
	case "chunked_connclose":
		body = "Connection: close\r\n" + chunk + "\r\n"
	case "both_lengths":
		body = "Content-Length: 5\r\n" + chunk + "\r\n"
	case "until_close":
		body, end = "\r\nhello", testnet.Close
	case "http10":
		status = "HTTP/1.0 200 OK\r\n"
	case "http10_keepalive":
		status = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"
	case "http11_keepalive":
		status += "Connection: keep-alive\r\n"
	case "connclose":
		status += "Connection: close\r\n"
	case "connclose_upper":
		status += "Connection: CLOSE\r\n"
	case "connclose_list":
		status += "Connection: foo, close\r\n"
	case "short_close":
		body, end = "Content-Length: 50\r\n\r\nhello", testnet.Close
	case "cl_then_close":
		end = testnet.Close
	case "early_hints":
		status = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok
	case "head_no_length":
		body = "\r\n"
	case "204":
		status, body = "HTTP/1.1 204 No Content\r\n", "\r\n"
	case "204_body":
		status, body = "HTTP/1.1 204 No Content\r\n", "\r\nhello"
	case "connclose_204":
		status, body = "HTTP/1.1 204 No Content\r\nConnection: close\r\n", "\r\n"
	case "304":
		status, body = "HTTP/1.1 304 Not Modified\r\n", "\r\n"
	case "304_cl":
		status, body = "HTTP/1.1 304 Not Modified\r\n", "Content-Length: 5\r\n\r\n"
	case "304_body":
		status = "HTTP/1.1 304 Not Modified\r\n"
	case "404", "500", "302":
		status = "HTTP/1.1 " + framing + " Scripted\r\n"
	case "404_cl0", "500_cl0":
		status, body = "HTTP/1.1 "+framing[:3]+" Scripted\r\n", "Content-Length: 0\r\n\r\n"
	case "101":
		return testnet.Answer{Raw: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n", Then: testnet.Hang}
	case "close_no_answer":
		return testnet.CloseUnanswered
	case "reset_no_answer":
		return testnet.ResetUnanswered
	default:
		panic("unknown framing " + framing)
	}
	if before, _, found := strings.Cut(body, "\r\n\r\n"); head && found {
		body = before + "\r\n\r\n"
	} else if head {
		body = "\r\n"
	}
	return testnet.Answer{Raw: status + body, Then: end}
}

// add starts the servers and configures the group and its two routes.
func (c *keepaliveCase) add(t *testing.T, s *stack, i int) {
	c.group = fmt.Sprintf("k%d", i)
	c.requests = map[string]int{}
	c.servers = map[string]*testnet.Backend{}
	x := &c.Config
	var servers []any
	for _, server := range x.Servers {
		b := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer { return c.serve(server.Label, r) })
		c.servers[server.Label] = b
		line := object{"address": b.Addr()}
		if x.MaxFails != "" {
			line["max_fails"] = number(t, x.MaxFails)
		}
		if x.FailTimeout != "" {
			line["fail_timeout"] = x.FailTimeout
		}
		servers = append(servers, line)
	}
	keepalive := object{"stale": "fail"}
	if k := x.Keepalive; k != nil {
		n, local, _ := strings.Cut(*k, " ")
		keepalive["connections"] = number(t, n)
		keepalive["local"] = local == "local"
	}
	if x.KeepaliveRequests != "" {
		keepalive["requests"] = number(t, x.KeepaliveRequests)
	}
	for field, value := range map[string]string{"time": x.KeepaliveTime, "timeout": x.KeepaliveTimeout} {
		if value != "" {
			keepalive[field] = value
		}
	}
	if keepalive["connections"] == 0 { // the rest would do nothing, and is refused
		keepalive = object{"connections": 0}
	}
	s.groups[c.group] = object{"servers": servers, "single_counts_down": true, "keepalive": keepalive}
	for location := 1; location <= 2; location++ {
		inner := object{"protocol": "upstream_keepalive"}
		if x.HTTPVersion != "" {
			inner["http_version"] = x.HTTPVersion
		}
		next := object{"transport": inner}
		if x.NextUpstream != "" {
			next["conditions"] = strings.Fields(x.NextUpstream)
		}
		if x.NextUpstreamTries != "" {
			next["tries"] = number(t, x.NextUpstreamTries)
		}
		extra := object{}
		if x.SetConnection != "" {
			extra["headers"] = object{"request": object{"set": object{"Connection": []any{x.SetConnection}}}}
		}
		s.route(c.path(location), c.group, next, extra)
	}
}

func (c *keepaliveCase) path(location int) string { return fmt.Sprintf("/%s/%d", c.group, location) }

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestKeepaliveAsNginxHasIt(t *testing.T) {
	var cases []*keepaliveCase
	readVectors(t, "../../upstreamkeepalive/testdata/keepalive.json", &cases)
	s := newStack()
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.Name
		c.add(t, s, i)
	}
	s.run(t)
	eachRecorded(t, names, keepaliveLeftOut, 88, 1, func(t *testing.T, i int) { cases[i].replay(t, s) })
}

func (c *keepaliveCase) replay(t *testing.T, s *stack) {
	held := map[string][]heldRequest{}
	results := c.Expected.Results
	for i, step := range c.Steps {
		if step.Op == "sleep" {
			time.Sleep(time.Duration(step.MS) * time.Millisecond) // a part of the recorded case
			continue
		}
		want := results[0]
		results = results[1:]
		switch step.Op {
		case "request":
			c.begin(step.Response, false)
			var header []string
			if step.Upgrade {
				header = []string{"Connection: Upgrade", "Upgrade: test"}
			}
			a := s.ask(t, step.Method, c.path(step.Location)+"/", step.Body, 0, header...)
			if a.Status != want.Status {
				t.Errorf("step %d: the client got %d, want %d", i, a.Status, want.Status)
			}
			if got := labels(a.Addr, c.group, c.servers); got != want.UpstreamAddr {
				t.Errorf("step %d: upstream_addr %s, want %s", i, got, want.UpstreamAddr)
			}
			// nginx shows 103 after early hints; we show the final status
			statuses := strings.ReplaceAll(want.UpstreamStatus, "103", "200")
			if got := strings.ReplaceAll(a.Statuses, " ", ""); got != statuses {
				t.Errorf("step %d: upstream_status %s, want %s", i, got, statuses)
			}
		case "hold":
			c.begin(nil, true)
			held[step.ID] = c.hold(t, s, step.Location, step.N)
		case "release":
			for _, n := range step.Order {
				close(held[step.ID][n].release)
				if a := <-held[step.ID][n].answer; a.Status != 200 {
					t.Errorf("step %d: a held request got %d, want 200", i, a.Status)
				}
			}
		default:
			t.Fatalf("unknown step %q", step.Op)
		}
		if got := c.arrivals(); step.Op != "release" && !slices.Equal(got, want.Arrived) {
			t.Fatalf("step %d: arrived %v, want %v", i, got, want.Arrived)
		}
		if want.OpenAfter != nil {
			testnet.Eventually(t, 10*time.Second, fmt.Sprintf("step %d: %q open", i, *want.OpenAfter),
				func() bool { return c.open() == *want.OpenAfter })
		}
	}
}

func (c *keepaliveCase) begin(script []string, holding bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script, c.arrived, c.held, c.holding = script, nil, nil, holding
}

func (c *keepaliveCase) arrivals() []arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.arrived)
}

// open are the open connections of all servers, as recorded.
func (c *keepaliveCase) open() string {
	var ids []string
	for label, b := range c.servers {
		for _, n := range b.Open() {
			ids = append(ids, fmt.Sprint(label, n))
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// heldRequest is one that its server has yet to answer.
type heldRequest struct {
	release chan struct{}
	answer  chan answer
}

// hold starts n requests, each when the one before has arrived.
func (c *keepaliveCase) hold(t *testing.T, s *stack, location, n int) []heldRequest {
	var out []heldRequest
	for i := range n {
		h := heldRequest{answer: make(chan answer, 1)}
		go func() { h.answer <- s.ask(t, "GET", c.path(location)+"/", "", 0) }()
		testnet.Eventually(t, 10*time.Second, "the held request to arrive", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.held) <= i {
				return false
			}
			h.release = c.held[i]
			return true
		})
		out = append(out, h)
	}
	return out
}
