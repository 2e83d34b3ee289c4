// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the whole: real Caddy processes with every module
// of this repository, real backends, real sockets.
package integration

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"

	_ "github.com/caddy-upstream/caddy-upstream"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// proxy is a Caddy under test, with a front called "front".
type proxy struct {
	*testnet.Caddy
	t *testing.T
	// reloads: a GET is repeated once if its connection ends before the first
	// byte of the response. Caddy may close connections that are queued at its
	// old listener, for a moment after the reload has been confirmed.
	reloads bool
}

// serve starts Caddy with global options (groups, mostly) and the directives of
// one site, which answers for every host.
func serve(t *testing.T, global, site string) *proxy {
	t.Helper()
	return start(t, config(global, site))
}

// start is the same for a whole configuration.
func start(t *testing.T, text string) *proxy {
	t.Helper()
	return &proxy{Caddy: testnet.StartCaddy(t, text, nil), t: t}
}

func config(global, site string) string {
	return "{\n\tdebug\n\tpersist_config off\n\tskip_install_trust\n\tgrace_period 2s\n" + global + "\n}\n" +
		"http://:{{port \"front\"}} {\n\tbind 127.0.0.1\n\tlog\n" + site + "\n}\n"
}

// group is the global option for a group of these server lines and options: a
// line that begins with a digit is a server's.
func group(name string, lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\tupstream %s {\n", name)
	for _, l := range lines {
		if l != "" && l[0] >= '0' && l[0] <= '9' {
			l = "server " + l
		}
		b.WriteString("\t\t" + l + "\n")
	}
	b.WriteString("\t}\n")
	return b.String()
}

func (p *proxy) get(target string, header ...string) testnet.Response {
	p.t.Helper()
	if !p.reloads {
		return testnet.Get(p.t, p.URL("front")+target, header...)
	}
	browser := testnet.Browser{Addr: p.Addr("front")}
	defer browser.Close()
	res, err := browser.Get(target, header...)
	if err != nil {
		p.t.Fatalf("GET %s: %v", target, err)
	}
	return res
}

func (p *proxy) post(target string, body []byte, header ...string) testnet.Response {
	p.t.Helper()
	return testnet.Do(p.t, "POST", p.URL("front")+target, header, body)
}

// dial opens a connection to the front that is closed with the test.
func (p *proxy) dial() *testnet.Client {
	p.t.Helper()
	c, err := testnet.Dial(p.Addr("front"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// bodies are the bodies of n requests, one after the other, joined by spaces.
func (p *proxy) bodies(n int, target string) string {
	p.t.Helper()
	out := make([]string, n)
	for i := range out {
		res := p.get(target)
		out[i] = res.Text()
		if res.Status != 200 {
			out[i] = fmt.Sprint(res.Status)
		}
	}
	return strings.Join(out, " ")
}

// access is the access log's line of the request to target.
func (p *proxy) access(target string) testnet.Line {
	p.t.Helper()
	return p.WaitLine(p.t, 10*time.Second, "access log line of "+target, func(l testnet.Line) bool {
		req, _ := l.Fields["request"].(map[string]any)
		return l.Msg() == "handled request" && req["uri"] == target
	})
}

// tries are the servers that the request to target was sent to, and what they
// answered, as the access log has them.
func (p *proxy) tries(target string) (addr, status string) {
	p.t.Helper()
	l := p.access(target)
	addr, _ = l.Fields["upstream_addr"].(string)
	status, _ = l.Fields["upstream_status"].(string)
	return addr, status
}

// logs waits for n lines with this message about a group ("" is any), and
// returns all there are.
func (p *proxy) logs(msg, group string, n int) []testnet.Line {
	p.t.Helper()
	var out []testnet.Line
	testnet.Eventually(p.t, 10*time.Second, fmt.Sprintf("%d lines %q of group %q", n, msg, group), func() bool {
		out = nil
		for _, l := range p.Logs(msg) {
			if (group == "" || l.Fields["group"] == group) && l.Fields["logger"] == "upstream" {
				out = append(out, l)
			}
		}
		return len(out) >= n
	})
	return out
}

// server is what the API says of one server.
type server struct {
	ID          string `json:"id"`
	Address     string `json:"address"`
	Weight      int    `json:"weight"`
	MaxFails    int    `json:"max_fails"`
	FailTimeout string `json:"fail_timeout"`
	State       struct {
		State           string     `json:"state"`
		Conns           int        `json:"conns"`
		Fails           int        `json:"fails"`
		CurrentWeight   int        `json:"current_weight"`
		EffectiveWeight int        `json:"effective_weight"`
		Picks           int        `json:"picks"`
		Failures        int        `json:"failures"`
		DownSince       *time.Time `json:"down_since"`
		LastError       string     `json:"last_error"`
	} `json:"state"`
}

// api reads from the admin API. A reload replaces the admin server as well, so a
// request beside it may find its connection closed, and is repeated.
func (p *proxy) api(path string, v any) {
	p.t.Helper()
	testnet.Eventually(p.t, 10*time.Second, "an answer to GET "+path, func() bool {
		status, body, err := p.Admin("GET", path, nil)
		if err != nil {
			return false
		}
		if err := json.Unmarshal(body, v); err != nil || status != 200 {
			p.t.Fatalf("GET %s: status %d, %q", path, status, body)
		}
		return true
	})
}

// servers are the servers of a group, in configuration order.
func (p *proxy) servers(group string) []server {
	p.t.Helper()
	var out []server
	p.api("/upstream/groups/"+url.PathEscape(group)+"/servers", &out)
	return out
}

// conns is the sum of what is in flight to all servers of all groups.
func (p *proxy) conns() int {
	p.t.Helper()
	var all struct {
		Groups []struct{ Servers []server }
	}
	p.api("/upstream/groups", &all)
	n := 0
	for _, g := range all.Groups {
		for _, s := range g.Servers {
			n += s.State.Conns
		}
	}
	return n
}

// waitConns waits until n requests are in flight.
func (p *proxy) waitConns(n int) {
	p.t.Helper()
	testnet.Eventually(p.t, 10*time.Second, fmt.Sprintf("%d requests in flight", n), func() bool { return p.conns() == n })
}

// backends starts n backends that answer with their ports.
func backends(t *testing.T, n int) []*testnet.Backend {
	t.Helper()
	out := make([]*testnet.Backend, n)
	for i := range out {
		out[i] = testnet.NewBackend(t, testnet.Answer{Body: fmt.Sprintf("%c", 'a'+i)})
	}
	return out
}

// named is an answer with a body.
func named(body string) testnet.Answer { return testnet.Answer{Body: body} }

// repeat is n times s with spaces between.
func repeat(s string, n int) string { return strings.TrimSpace(strings.Repeat(s+" ", n)) }
