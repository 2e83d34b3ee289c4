// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"

	_ "github.com/caddy-upstream/caddy-upstream/modules/nextupstream"
	_ "github.com/caddy-upstream/caddy-upstream/passivehealth"
	_ "github.com/caddy-upstream/caddy-upstream/smoothrr"
	_ "github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)

// object is a JSON object.
type object = map[string]any

// stack is Caddy in this process, with a group and one or more routes to it for
// each recorded case. All requests go over one Unix socket.
type stack struct {
	groups object
	routes []any
	socket string
}

func newStack() *stack { return &stack{groups: object{}} }

// route adds a reverse_proxy handler for all paths below prefix.
func (s *stack) route(prefix, group string, transport, extra object) {
	transport["protocol"] = "next_upstream"
	proxy := object{
		"handler": "reverse_proxy", "transport": transport,
		"load_balancing": object{"selection_policy": object{"policy": "upstream", "group": group}},
	}
	for k, v := range extra {
		proxy[k] = v
	}
	s.routes = append(s.routes, object{
		"match":  []any{object{"path": []any{prefix + "/*"}}},
		"handle": []any{object{"handler": "test_recorder"}, proxy},
	})
}

// run starts Caddy until the end of the test.
func (s *stack) run(t *testing.T) {
	t.Helper()
	// not t.TempDir(): the path of a Unix socket has room for 100 bytes only
	dir, err := os.MkdirTemp("", "cu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.socket = filepath.Join(dir, "front.sock")
	config, err := json.Marshal(object{
		"admin":   object{"disabled": true},
		"logging": object{"logs": object{"default": object{"writer": object{"output": "discard"}}}},
		"apps": object{
			"upstream": object{"groups": s.groups},
			"http": object{"servers": object{"front": object{
				"listen": []any{"unix/" + s.socket}, "routes": s.routes,
				"automatic_https": object{"disable": true},
			}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// answer is what the client got, and what was recorded of the request.
type answer struct {
	Status   int
	From     string // header X-From
	Body     string
	Complete bool // the body
	Addr     string
	Statuses string
}

// chunked is the header of a request whose body is written in chunks.
const chunked = "Transfer-Encoding: chunked"

// ask sends a request and waits until its handler has returned. body is sent
// pause after the header.
func (s *stack) ask(t *testing.T, method, path, body string, pause time.Duration, header ...string) answer {
	t.Helper()
	id := fmt.Sprint(lastID.Add(1))
	recorded := make(chan answer, 1)
	records.Store(id, recorded)
	defer records.Delete(id)
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))

	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: test", "X-Id: " + id}, header...)
	if body != "" && !slices.Contains(header, chunked) {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	head := strings.Join(lines, "\r\n") + "\r\n\r\n"
	if pause > 0 {
		_, _ = io.WriteString(c, head)
		time.Sleep(pause) // a part of the recorded case
		head = ""
	}
	if _, err := io.WriteString(c, head+body); err != nil {
		t.Fatal(err)
	}
	a := read(t, c, method)
	c.Close()
	select {
	case r := <-recorded:
		a.Addr, a.Statuses = r.Addr, r.Statuses
	case <-time.After(30 * time.Second):
		t.Fatal("the handler does not return")
	}
	return a
}

func read(t *testing.T, c net.Conn, method string) answer {
	t.Helper()
	for r := bufio.NewReader(c); ; {
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("reading the response: %v", err)
		}
		if res.StatusCode/100 == 1 && res.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		a := answer{Status: res.StatusCode, From: res.Header.Get("X-From")}
		if res.StatusCode == http.StatusSwitchingProtocols {
			return a
		}
		text, err := io.ReadAll(res.Body)
		a.Body, a.Complete = string(text), err == nil
		return a
	}
}

// recorder is a handler that records the placeholders of a request when the
// handlers behind it have returned.
type recorder struct{}

var (
	lastID  atomic.Int64
	records sync.Map // id -> chan answer
)

func init() { caddy.RegisterModule(recorder{}) }

func (recorder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_recorder", New: func() caddy.Module { return new(recorder) }}
}

func (recorder) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	defer func() {
		repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		a := answer{
			Addr:     repl.ReplaceKnown("{http.upstream.addr}", ""),
			Statuses: repl.ReplaceKnown("{http.upstream.status}", ""),
		}
		if recorded, ok := records.Load(r.Header.Get("X-Id")); ok {
			recorded.(chan answer) <- a
		}
	}()
	return next.ServeHTTP(w, r)
}

// labels writes recorded addresses as the labels of the servers, @ for the
// group.
func labels(addr, group string, servers map[string]*testnet.Backend) string {
	names := map[string]string{group: "@"}
	for label, b := range servers {
		names[b.Addr()] = label
	}
	addrs := strings.Split(addr, ", ")
	for i, a := range addrs {
		if name := names[a]; name != "" {
			addrs[i] = name
		}
	}
	return strings.Join(addrs, ",")
}

// groupState asks the read-only API.
func groupState(t *testing.T, group string) (state upstream.GroupState) {
	t.Helper()
	info, err := caddy.GetModule("admin.api.upstream")
	if err != nil {
		t.Fatal(err)
	}
	route := info.New().(caddy.AdminRouter).Routes()[0]
	w := httptest.NewRecorder()
	if err := route.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/upstream/groups/"+group, nil)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// eachRecorded runs f for each of the recorded cases as a subtest, at most 16 at
// the same time: they wait more than they work. Those that are left out, and why,
// are named in the log; so many have to run and to be left out.
func eachRecorded(t *testing.T, names []string, leftOut map[string]string, run, out int, f func(*testing.T, int)) {
	t.Helper()
	if n := len(names) - len(leftOut); n != run || len(leftOut) != out {
		t.Errorf("%d cases run and %d are left out, want %d and %d", n, len(leftOut), run, out)
	}
	for name, why := range leftOut {
		t.Logf("left out: %s: %s", name, why)
		if !slices.Contains(names, name) {
			t.Errorf("there is no case %q to leave out", name)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i, name := range names {
		if leftOut[name] != "" {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t.Run(name, func(t *testing.T) { f(t, i) })
		})
	}
	wg.Wait()
}

func readVectors(t *testing.T, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}
