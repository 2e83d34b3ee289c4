// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// fields are the values that nginx has a variable for.
var fields = []string{
	"upstream_addr", "upstream_status", "upstream_connect_time", "upstream_header_time",
	"upstream_response_time", "upstream_response_length", "upstream_bytes_sent", "upstream_bytes_received",
}

// situations are what the access log is looked at after: servers of a group,
// and the backend's answer.
var situations = []struct {
	name    string
	servers string // r: refuses, b: the backend
	answer  testnet.Answer
	status  int
}{
	{"answered", "b", named("hello"), 200},
	{"refused_then_answered", "rb", named("hello"), 200},
	{"all_refuse", "rr", named(""), 502},
	{"one_refuses", "r", named(""), 502},
	{"closed", "b", testnet.CloseUnanswered, 502},
	{"silent", "b", testnet.Silent, 504},
	{"slow_body", "b", testnet.Answer{Body: "hello", Delay: time.Second}, 200},
	{"not_found", "b", testnet.StatusAnswer(404), 404},
	{"next_status", "bb", testnet.StatusAnswer(503), 503},
	{"chunked", "b", testnet.Answer{Header: []string{"Transfer-Encoding: chunked"}, Body: "5\r\nhello\r\n0\r\n\r\n"}, 200},
	{"no_content", "b", testnet.Answer{Status: 204}, 204},
}

func TestAccessLogFieldsAreThoseOfNginxOnTheSameBackends(t *testing.T) {
	t.Parallel()
	testnet.Need(t, "nginx")
	var groups, routes, upstreams, locations strings.Builder
	for _, s := range situations {
		var lines []string
		fmt.Fprintf(&upstreams, "upstream %s {\n", s.name)
		for _, kind := range s.servers {
			addr := testnet.RefusedAddr(t)
			if kind == 'b' {
				addr = testnet.NewBackend(t, s.answer).Addr()
			}
			lines = append(lines, addr)
			fmt.Fprintf(&upstreams, "server %s;\n", addr)
		}
		upstreams.WriteString("}\n")
		groups.WriteString(group(s.name, lines...))
		fmt.Fprintf(&routes, "\tproxy_pass /%s %s {\n\t\tread_timeout 1500ms\n\t\tnext_upstream error timeout http_503\n\t}\n", s.name, s.name)
		fmt.Fprintf(&locations, "location /%s { proxy_pass http://%s; proxy_read_timeout 1500ms;\n"+
			"proxy_next_upstream error timeout http_503; proxy_http_version 1.1; }\n", s.name, s.name)
	}
	p := serve(t, groups.String(), routes.String())
	nginx := testnet.StartNginx(t, nginxConf(upstreams.String(), locations.String()), nil)

	for _, s := range situations {
		// Twice: what the first request found decides what the second does.
		for n := range 2 {
			if n > 0 && (s.status == 504 || s.answer.Delay > 0) {
				continue // nothing is decided, and time is dear
			}
			target := fmt.Sprintf("/%s?%d", s.name, n)
			res := p.get(target)
			theirs := testnet.Get(t, "http://"+nginx.Addr("front")+target)
			if res.Status != theirs.Status || n == 0 && res.Status != s.status {
				t.Errorf("%s: status %d, nginx's %d", target, res.Status, theirs.Status)
			}
			ours := p.access(target)
			want := nginxLog(t, nginx, target)
			if ours.Fields["upstream_name"] != s.name {
				t.Errorf("%s: upstream_name = %v, want %s", target, ours.Fields["upstream_name"], s.name)
			}
			for _, f := range fields {
				if got := fmt.Sprint(ours.Fields[f]); !alike(f, got, want[f]) {
					t.Errorf("%s: %s = %q, nginx has %q", target, f, got, want[f])
				}
			}
		}
	}
}

func nginxConf(upstreams, locations string) string {
	var format strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&format, `"%s":"$%s",`, f, f)
	}
	return `events {}
http {
log_format fields escape=json '{` + format.String() + `"uri":"$request_uri"}';
access_log access.log fields;
` + upstreams + `
server { listen 127.0.0.1:{{port "front"}};
` + locations + `
} }`
}

// nginxLog is nginx's access log line of the request to target.
func nginxLog(t *testing.T, s *testnet.RealServer, target string) map[string]string {
	t.Helper()
	var found map[string]string
	testnet.Eventually(t, 10*time.Second, "nginx's log line of "+target, func() bool {
		text, _ := os.ReadFile(filepath.Join(s.Dir, "access.log"))
		for line := range strings.Lines(string(text)) {
			var l map[string]string
			if json.Unmarshal([]byte(line), &l) == nil && l["uri"] == target {
				found = l
				return true
			}
		}
		return false
	})
	return found
}

var (
	aTime   = regexp.MustCompile(`\d+\.\d{3}`)
	aNumber = regexp.MustCompile(`\b[1-9]\d*`)
)

// alike compares a value with nginx's. Times differ by what the machine was
// doing, so only their form and whether a server made them long count; requests
// differ in length, so of bytes sent only whether there were any; and so does
// what had been read of a response when it was given up for the next server.
func alike(field, got, want string) bool {
	rough := func(s string) string { return s }
	switch {
	case strings.HasSuffix(field, "_time"):
		rough = func(s string) string {
			return aTime.ReplaceAllStringFunc(s, func(v string) string {
				var f float64
				_, _ = fmt.Sscan(v, &f)
				if f >= 0.9 {
					return "long"
				}
				return "short"
			})
		}
	case field == "upstream_bytes_sent", field == "upstream_bytes_received" && strings.Contains(want, ", "):
		rough = func(s string) string { return aNumber.ReplaceAllString(s, "some") }
	}
	return rough(got) == rough(want)
}

func TestPlaceholdersHoldWhatTheAccessLogHas(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, named("hello"))
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", dead, b.Addr()), `
	proxy_pass app {
		header_down X-Upstream "{http.upstream.name} {http.upstream.addr} {http.upstream.status}"
		header_down X-Times "{http.upstream.connect_time} {http.upstream.header_time}"
		header_down X-Bytes "{http.upstream.bytes_sent}"
	}`)
	res := p.get("/")
	if got, want := res.Get("X-Upstream"), "app "+dead+", "+b.Addr()+" 502, 200"; got != want {
		t.Errorf("name, addr and status %q, want %q", got, want)
	}
	if got := res.Get("X-Times"); !regexp.MustCompile(`^-, \d\.\d{3} -, \d\.\d{3}$`).MatchString(got) {
		t.Errorf("times %q, want none for the first try", got)
	}
	if got := p.access("/").Fields["upstream_bytes_sent"]; res.Get("X-Bytes") != got {
		t.Errorf("bytes sent %q, in the access log %q", res.Get("X-Bytes"), got)
	}
}
