// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// The cases in testdata/keepalive.json were recorded from nginx 1.31.5: every
// request's arrivals at the servers, by connection, and which connections are
// open afterwards. The transport does not choose servers and does not judge,
// so the test does both, as recorded: a try that fails, or is answered with a
// status that asks for another try, goes on to the next recorded arrival.
// StaleFails is set, for nginx does not mend stale connections.

// leftOut are the cases that cannot be replayed, and why.
var leftOut = map[string]string{
	"ka 032: HEAD, framing head_body": "nginx overlooks a body after the answer to HEAD that comes with the header; we close such a connection",
}

type vector struct {
	Name   string
	Config struct {
		Keepalive          *string
		KeepaliveRequests  string `json:"keepalive_requests"`
		KeepaliveTime      string `json:"keepalive_time"`
		KeepaliveTimeout   string `json:"keepalive_timeout"`
		HTTPVersion        string `json:"http_version"`
		NextUpstream       string `json:"next_upstream"`
		MaxFails           string `json:"max_fails"`
		FailTimeout        string `json:"fail_timeout"`
		NextUpstreamTries  string `json:"next_upstream_tries"`
		SetConnectionClose string `json:"set_connection"`
		Servers            []struct{ Label string }
	}
	Steps []struct {
		Op, Method, ID, Body string
		Location, N, MS      int
		Order                []int
		Upgrade              bool
		Response             framings
	}
	Expected struct {
		Results []struct {
			Status    int
			Arrived   []arrival
			OpenAfter *string `json:"open_after"`
		}
	}
}

// framings is one name or a list.
type framings []string

func (f *framings) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*f = framings{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(f))
}

type arrival struct {
	Server        string
	Conn, Request int
}

func (a *arrival) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&a.Server, &a.Conn, &a.Request})
}

// scripted are the servers of one case.
type scripted struct {
	mu      sync.Mutex // guards all below
	addrs   map[string]net.Addr
	open    map[string]bool // by label and connection, "a1"
	script  framings        // of the current request
	arrived []arrival
	held    chan chan struct{} // not nil: hold requests
}

func startScripted(t *testing.T, labels []string) *scripted {
	s := &scripted{addrs: make(map[string]net.Addr), open: make(map[string]bool)}
	for _, label := range labels {
		s.addrs[label] = rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) { s.serve(label, n, c, r) }).Addr()
	}
	return s
}

func (s *scripted) serve(label string, n int, c net.Conn, r *bufio.Reader) {
	id := label + strconv.Itoa(n)
	s.mu.Lock()
	s.open[id] = true
	s.mu.Unlock()
	defer func() {
		_ = c.Close() // first: what openNow says is what a client finds
		s.mu.Lock()
		delete(s.open, id)
		s.mu.Unlock()
	}()
	for i := 1; ; i++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		s.mu.Lock()
		s.arrived = append(s.arrived, arrival{label, n, i})
		framing := "cl"
		if len(s.script) > 0 {
			framing = s.script[min(len(s.arrived), len(s.script))-1]
		}
		held := s.held
		s.mu.Unlock()
		if held != nil {
			release := make(chan struct{})
			held <- release
			<-release
		}
		text, end := scriptedAnswer(framing, req.Method == "HEAD")
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		switch end {
		case "close":
			return
		case "reset":
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		}
	}
}

// scriptedAnswer is what a server sends for a framing, and how it ends.
func scriptedAnswer(framing string, head bool) (text, end string) {
	const ok = "HTTP/1.1 200 OK\r\n"
	five := "Content-Length: 5\r\n\r\n"
	if !head {
		five += "hello"
	}
	chunks := "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
	if head {
		chunks = "Transfer-Encoding: chunked\r\n"
	}
	switch framing {
	case "cl":
		return ok + five, ""
	case "cl0":
		return ok + "Content-Length: 0\r\n\r\n", ""
	case "cl0_extra":
		return ok + "Content-Length: 0\r\n\r\nextra", ""
	case "extra":
		return ok + five + "extra", ""
	case "chunked":
		return ok + chunks + "\r\n", ""
	case "chunked_trailer":
		return ok + chunks + "X-Trailer: 1\r\n\r\n", ""
	case "chunked_extra":
		return ok + chunks + "\r\nextra", ""
	case "until_close":
		return ok + "\r\nhello", "close"
	case "http10":
		return "HTTP/1.0 200 OK\r\n" + five, ""
	case "http10_keepalive":
		return "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + five, ""
	case "http11_keepalive":
		return ok + "Connection: keep-alive\r\n" + five, ""
	case "connclose":
		return ok + "Connection: close\r\n" + five, ""
	case "connclose_upper":
		return ok + "Connection: CLOSE\r\n" + five, ""
	case "connclose_list":
		return ok + "Connection: foo, close\r\n" + five, ""
	case "connclose_204":
		return "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", ""
	case "chunked_connclose":
		return ok + "Connection: close\r\n" + chunks + "\r\n", ""
	case "short_close":
		return ok + "Content-Length: 50\r\n\r\nhello", "close"
	case "cl_then_close":
		return ok + five, "close"
	case "early_hints":
		return "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + five, ""
	case "both_lengths":
		return ok + "Content-Length: 5\r\n" + chunks + "\r\n", ""
	case "head_no_length":
		return ok + "\r\n", ""
	case "204":
		return "HTTP/1.1 204 No Content\r\n\r\n", ""
	case "204_body":
		return "HTTP/1.1 204 No Content\r\n\r\nhello", ""
	case "304":
		return "HTTP/1.1 304 Not Modified\r\n\r\n", ""
	case "304_cl":
		return "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", ""
	case "304_body":
		return "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello", ""
	case "404", "500", "302":
		return "HTTP/1.1 " + framing + " Status\r\n" + five, ""
	case "404_cl0", "500_cl0":
		return "HTTP/1.1 " + framing[:3] + " Status\r\nContent-Length: 0\r\n\r\n", ""
	case "101":
		return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n", ""
	case "close_no_answer":
		return "", "close"
	case "reset_no_answer":
		return "", "reset"
	}
	panic("unknown framing " + framing)
}

func (s *scripted) begin(script framings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.arrived = script, nil
}

func (s *scripted) arrivals() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrived)
}

func (s *scripted) openNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id := range s.open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// memoryStore is a group's state.
type memoryStore struct {
	mu      sync.Mutex
	objects map[string]io.Closer
	watch   []func(string)
}

func newStore(tb testing.TB) *memoryStore {
	s := &memoryStore{objects: make(map[string]io.Closer)}
	tb.Cleanup(func() {
		for _, o := range s.objects {
			o.Close()
		}
	})
	return s
}

func (s *memoryStore) Shared(key string, create func() io.Closer) io.Closer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[key] == nil {
		s.objects[key] = create()
	}
	return s.objects[key]
}

func (s *memoryStore) OnRemove(f func(string)) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.watch)
	s.watch = append(s.watch, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watch[i] = nil
	}
}

func (s *memoryStore) remove(address string) {
	for _, f := range s.watch {
		if f != nil {
			f(address)
		}
	}
}

// locations returns two transports over one group, as two location blocks.
func locations(t *testing.T, v *vector) map[int]*Transport {
	store, group := newStore(t), exchange.Keepalive{}
	if k := v.Config.Keepalive; k != nil {
		n, local, _ := strings.Cut(*k, " ")
		i, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		group.Connections, group.Local = &i, local == "local"
	}
	if n := v.Config.KeepaliveRequests; n != "" {
		group.Requests, _ = strconv.Atoi(n)
	}
	for text, d := range map[string]*time.Duration{v.Config.KeepaliveTime: &group.Time, v.Config.KeepaliveTimeout: &group.Timeout} {
		if text != "" {
			var err error
			if *d, err = caddy.ParseDuration(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := make(map[int]*Transport)
	for i := 1; i <= 2; i++ {
		tr := provisioned(t, &Transport{HTTPVersion: v.Config.HTTPVersion})
		if err := tr.Bind(store, group); err != nil {
			t.Fatal(err)
		}
		out[i] = tr
	}
	return out
}

// asksForMore reports whether nginx tried another server after this status.
func (v *vector) asksForMore(status int) bool {
	return strings.Contains(v.Config.NextUpstream, fmt.Sprintf("http_%d", status))
}

func (s *scripted) exchange(t *testing.T, v *vector, tr *Transport, method, body string, upgrade bool, to []arrival) int {
	status := 502
	for i, a := range to {
		var rd io.Reader
		if body != "" {
			rd = strings.NewReader(body)
		}
		req := request(t, method, s.addrs[a.Server], rd)
		if upgrade {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "test")
		}
		e := newEnder()
		attempt := &exchange.Attempt{Ender: e, StaleFails: true}
		res, err := tr.Exchange(req, attempt)
		if err != nil {
			var ee *exchange.Error
			if !errors.As(err, &ee) {
				t.Fatalf("Exchange() = %v, not an *exchange.Error", err)
			}
			status = 502
			continue
		}
		status = res.StatusCode
		if i+1 < len(to) && v.asksForMore(status) || status == 101 {
			attempt.NoReuse = status >= 500 // counted as a failure
			res.Body.Close()
		} else {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		if n := e.count(); n != 1 {
			t.Errorf("Ended %d times, want 1", n)
		}
		if i+1 < len(to) && !v.asksForMore(status) {
			t.Fatalf("answered %d at arrival %d of %d", status, i+1, len(to))
		}
	}
	return status
}

func TestNginxVectors(t *testing.T) {
	b, err := os.ReadFile("testdata/keepalive.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	replayed := 0
	for i := range vectors {
		v := &vectors[i]
		if why := leftOut[v.Name]; why != "" {
			t.Logf("left out: %s: %s", v.Name, why)
			continue
		}
		replayed++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			v.replay(t)
		})
	}
	if out := len(vectors) - replayed; replayed != 88 || out != 1 {
		t.Errorf("%d cases were replayed and %d left out, want 88 and 1", replayed, out)
	}
}

func (v *vector) replay(t *testing.T) {
	var labels []string
	for _, s := range v.Config.Servers {
		labels = append(labels, s.Label)
	}
	s := startScripted(t, labels)
	trs := locations(t, v)
	holds := make(map[string][]*heldRequest)
	results := v.Expected.Results
	for i, step := range v.Steps {
		if step.Op == "sleep" {
			time.Sleep(time.Duration(step.MS) * time.Millisecond) // a part of the recorded case
			continue
		}
		want := results[0]
		results = results[1:]
		switch step.Op {
		case "request":
			s.begin(step.Response)
			got := s.exchange(t, v, trs[step.Location], step.Method, step.Body, step.Upgrade, want.Arrived)
			if got != want.Status {
				t.Errorf("step %d: status %d, want %d", i, got, want.Status)
			}
		case "hold":
			s.begin(nil)
			holds[step.ID] = s.hold(t, trs[step.Location], want.Arrived)
		case "release":
			for _, n := range step.Order {
				holds[step.ID][n].finish(t)
			}
		}
		if got := s.arrivals(); step.Op != "release" && !slices.Equal(got, want.Arrived) {
			t.Fatalf("step %d: arrived %v, want %v", i, got, want.Arrived)
		}
		if want.OpenAfter != nil {
			eventually(t, fmt.Sprintf("step %d: open %q", i, *want.OpenAfter), func() bool { return s.openNow() == *want.OpenAfter })
		}
	}
}

// heldRequest is one that a server does not answer yet.
type heldRequest struct {
	release chan struct{}
	done    chan error
}

func (s *scripted) hold(t *testing.T, tr *Transport, to []arrival) (out []*heldRequest) {
	s.mu.Lock()
	s.held = make(chan chan struct{})
	s.mu.Unlock()
	for _, a := range to {
		h := &heldRequest{done: make(chan error, 1)}
		req := request(t, "GET", s.addrs[a.Server], nil)
		go func() {
			res, err := tr.Exchange(req, new(exchange.Attempt))
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			h.done <- err
		}()
		h.release = <-s.held
		out = append(out, h)
	}
	s.mu.Lock()
	s.held = nil
	s.mu.Unlock()
	return out
}

func (h *heldRequest) finish(t *testing.T) {
	close(h.release)
	if err := <-h.done; err != nil {
		t.Errorf("held request: %v", err)
	}
}
