// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// TestTheObserverRecordsWhatItSees is about groups over Caddy's own transport
// without next_upstream: what is in the access log, in the placeholders and in
// the metrics is what nginx would have there.
func TestTheObserverRecordsWhatItSees(t *testing.T) {
	t.Parallel()
	good := testnet.NewBackend(t, named("good")).Addr()
	silent := testnet.NewBackend(t, testnet.Silent).Addr()
	cases := []struct {
		name, options string
		servers       []string
		status        int    // of the client
		tries         string // upstream_status
		reason        string // of the first server's failure
		class         string // of the first server's answer
	}{
		{"answers", "", []string{good}, 200, "200", "", "2xx"},
		{"silent", "", []string{silent}, 504, "504", "timeout", ""},
		{"silent-then-good", "lb_retries 1", []string{silent, good}, 200, "504, 200", "timeout", ""},
		{"refuses", "", []string{testnet.RefusedAddr(t)}, 502, "502", "error", ""},
		{"refuses-then-good", "lb_retries 1", []string{testnet.RefusedAddr(t), good}, 200, "502, 200", "error", ""},
		{"closes", "", []string{testnet.NewBackend(t, testnet.CloseUnanswered).Addr()}, 502, "502", "error", ""},
		{"no-http", "", []string{testnet.NewBackend(t, testnet.Answer{Raw: "SSH-2.0-x\r\n\r\n", Then: testnet.Close}).Addr()}, 502, "502", "invalid_header", ""},
		{"says-502", "", []string{testnet.NewBackend(t, testnet.StatusAnswer(502)).Addr()}, 502, "502", "", "5xx"},
		{"says-504", "", []string{testnet.NewBackend(t, testnet.StatusAnswer(504)).Addr()}, 504, "504", "", "5xx"},
	}
	var groups, site strings.Builder
	for _, c := range cases {
		groups.WriteString(group(c.name, c.servers...))
		fmt.Fprintf(&site, `
	reverse_proxy /%s {
		lb_policy upstream %[1]s
		%s
		transport http {
			response_header_timeout 2s
		}
		header_down X-Tries "{http.upstream.status}"
	}`, c.name, c.options)
	}
	p := start(t, strings.TrimSuffix(config(groups.String(), site.String()), "}\n")+`
	handle_errors {
		header X-Tries "{http.upstream.status}"
		respond {err.status_code}
	}
}
`)
	for _, c := range cases {
		res := p.get("/" + c.name)
		if _, tries := p.tries("/" + c.name); res.Status != c.status || tries != c.tries || res.Get("X-Tries") != c.tries {
			t.Errorf("%s: status %d, upstream_status %q, placeholder %q; want %d and %q", c.name, res.Status, tries, res.Get("X-Tries"), c.status, c.tries)
		}
		s := p.servers(c.name)[0]
		if got, want := s.State.Failures, map[bool]int{true: 1}[c.reason != ""]; got != want {
			t.Errorf("%s: %d failures, want %d", c.name, got, want)
		}
		for _, class := range []string{"2xx", "5xx"} {
			labels := fmt.Sprintf(`address="%s",class="%s",group="%s",server="%[1]s"`, s.Address, class, c.name)
			if got, want := p.metric("server_responses_total", labels), map[bool]string{true: "1"}[class == c.class]; got != want {
				t.Errorf("%s: %q answers %s, want %q", c.name, got, class, want)
			}
		}
		labels := fmt.Sprintf(`address="%s",group="%s",reason="%s",server="%[1]s"`, s.Address, c.name, c.reason)
		if got := p.metric("server_failures_total", labels); c.reason != "" && got != "1" {
			t.Errorf("%s: %q failures for the reason %s, want 1", c.name, got, c.reason)
		}
	}
	p.waitConns(0)
}

func TestConnectingTooLongOverCaddysTransportIsATimeout(t *testing.T) {
	t.Parallel()
	good, hole := startHTTP2(t, nil, echo), blackHole(t)
	p := serve(t, group("seen", hole, testnet.NewBackend(t, named("good")).Addr())+group("both", hole, good)+group("alone", hole), `
	reverse_proxy /seen {
		lb_policy upstream seen
		lb_retries 1
		transport http {
			dial_timeout 1s
		}
	}
	proxy_pass /both h2c://both {
		connect_timeout 1s
	}
	proxy_pass /alone h2c://alone {
		connect_timeout 1s
	}`)
	for _, c := range []struct {
		group  string
		status int
		tries  string
	}{{"seen", 200, "504, 200"}, {"both", 200, "504, 200"}, {"alone", 504, "504"}} {
		res := p.get("/" + c.group)
		if _, tries := p.tries("/" + c.group); res.Status != c.status || tries != c.tries {
			t.Errorf("%s: status %d, tries %q; want %d and %q", c.group, res.Status, tries, c.status, c.tries)
		}
		labels := fmt.Sprintf(`address="%s",group="%s",reason="timeout",server="%[1]s"`, hole, c.group)
		if got := p.metric("server_failures_total", labels); got != "1" {
			t.Errorf("%s: %q timeouts, want 1", c.group, got)
		}
	}
}
