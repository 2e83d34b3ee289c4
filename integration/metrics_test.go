// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// metric is the value of a series on the metrics endpoint, "" if there is none.
// labels are a="b" pairs in the endpoint's order.
func (p *proxy) metric(name, labels string) string {
	p.t.Helper()
	status, body, err := p.Admin("GET", "/metrics", nil)
	if err != nil || status != 200 {
		p.t.Fatalf("GET /metrics: %d, %v, %s", status, err, body)
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta("caddy_upstream_"+name+"{"+labels+"}") + ` (\S+)$`).FindSubmatch(body)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// CASES 51.
func TestMetricsCountOverReloads(t *testing.T) {
	t.Parallel()
	good, other := testnet.NewBackend(t, named("a")), testnet.NewBackend(t, named("b"))
	dead := testnet.RefusedAddr(t)
	// Two handlers: one of a group, one of a list.
	site := func(n int) string {
		return fmt.Sprintf("\tproxy_pass /list %s\n%s", other.Addr(), pass(n))
	}
	g := group("app", dead+" id=dead max_fails=0", good.Addr()+" id=good", "keepalive 8")
	p := reloadable(t, g, site(0))
	label := func(id, address string) string {
		return fmt.Sprintf(`address="%s",group="app",server="%s"`, address, id)
	}
	for n := range 3 {
		p.bodies(2, "/")
		p.bodies(1, "/list")
		p.MustReload(config(g, site(n+1)), nil)
	}
	for _, c := range []struct{ name, labels, want string }{
		{"requests_total", `group="app"`, "6"}, {"retries_total", `group="app"`, p.metric("server_failures_total", strings.Replace(label("dead", dead), `,server`, `,reason="error",server`, 1))}, // each failure was retried
		{"refused_total", `group="app"`, "0"}, {"servers", `group="app"`, "2"}, {"servers_up", `group="app"`, "2"}, {"queue", `group="app"`, "0"},
		{"server_up", label("good", good.Addr()), "1"}, {"server_active", label("good", good.Addr()), "0"},
		{"server_weight", label("good", good.Addr()), "1"}, {"server_effective_weight", label("good", good.Addr()), "1"},
		{"server_tries_total", label("good", good.Addr()), "6"},
		{"server_response_seconds_count", label("good", good.Addr()), "6"}, {"server_header_seconds_count", label("good", good.Addr()), "6"},
		{"server_responses_total", strings.Replace(label("good", good.Addr()), `,group`, `,class="2xx",group`, 1), "6"},
		{"requests_total", `group="` + strings.ReplaceAll(other.Addr(), ":", "-") + `"`, "3"},
	} {
		if got := p.metric(c.name, c.labels); got != c.want || got == "" {
			t.Errorf("%s{%s} = %q, want %q", c.name, c.labels, got, c.want)
		}
	}
	if got := p.metric("server_connections_total", label("good", good.Addr())); got == "" {
		t.Error("no connections are counted")
	}
	p.change(200, "DELETE", "/upstream/groups/app/servers/dead", "")
	if got := p.metric("server_tries_total", label("dead", dead)); got != "" {
		t.Errorf("a removed server has %s tries, want no series", got)
	}
}

func TestEventsTellOfServersAndEmptyGroups(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	n := newMortal(t)
	g := group("app", m.addr+" id=m fail_timeout=1s", n.addr+" id=n fail_timeout=1s")
	p := reloadable(t, g, pass(0))
	p.MustReload(config(g, pass(1)), nil)
	event := func(name, server string) testnet.Line {
		t.Helper()
		return p.WaitLine(t, 15*time.Second, "event "+name+" of "+server, func(l testnet.Line) bool {
			data, _ := l.Fields["data"].(map[string]any)
			return l.Msg() == "event" && l.Fields["name"] == name && data["group"] == "app" && (server == "" || data["server"] == server)
		})
	}
	m.kill()
	p.bodies(4, "/")
	data, _ := event("upstream.server_down", "m").Fields["data"].(map[string]any)
	if data["address"] != m.addr || data["fails"] != 1.0 || data["fail_timeout"] != "1s" || !strings.Contains(fmt.Sprint(data["reason"]), "refused") {
		t.Errorf("server_down: %v", data)
	}
	n.kill()
	p.bodies(2, "/")
	l := event("upstream.group_empty", "")
	if data, _ := l.Fields["data"].(map[string]any); data["servers"] != 2.0 || l.Fields["origin"] != "upstream" {
		t.Errorf("group_empty: %v", l.Fields)
	}
	m.start()
	n.start()
	testnet.Eventually(t, 10*time.Second, "an answer", func() bool { return p.bodies(1, "/") != "502" })
	up := ""
	testnet.Eventually(t, 10*time.Second, "a server up", func() bool {
		p.bodies(2, "/")
		for _, s := range p.servers("app") {
			if s.State.Fails == 0 && s.State.State == "up" {
				up = s.ID
			}
		}
		return up != ""
	})
	if data, _ := event("upstream.server_up", up).Fields["data"].(map[string]any); data["down_for"] == "" {
		t.Errorf("server_up: %v", data)
	}
}
