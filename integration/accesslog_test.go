// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

// placeholders are all of {http.upstream.*} that the access log has as well, as
// upstream_*.
var placeholders = []string{
	"name", "addr", "status", "connect_time", "header_time", "response_time", "response_length", "bytes_sent", "bytes_received",
}

func TestPlaceholdersHoldWhatTheAccessLogHas(t *testing.T) {
	t.Parallel()
	const answer = "HTTP/1.1 200 OK\r\nX-Padding: 0123456789\r\nContent-Length: 5\r\n\r\nhello"
	var arrived atomic.Int64 // bytes of the last request
	b := testnet.NewTCP(t, func(c net.Conn, _ int) {
		head := make([]byte, 0, 4096)
		for !bytes.HasSuffix(head, []byte("\r\n\r\nbody")) {
			n, err := c.Read(head[len(head):cap(head)])
			if err != nil {
				return
			}
			head = head[:len(head)+n]
		}
		arrived.Store(int64(len(head)))
		_, _ = io.WriteString(c, answer)
	}).Addr()
	dead := testnet.RefusedAddr(t)
	var early, late, latest strings.Builder
	for _, name := range placeholders {
		fmt.Fprintf(&early, "\t\theader_down X-%s {http.upstream.%[1]s}\n", name)
		fmt.Fprintf(&late, "\tlog_append end_%s {http.upstream.%[1]s}\n", name)
		fmt.Fprintf(&latest, "\t\tlog_append error_end_%s {http.upstream.%[1]s}\n", name)
	}
	p := serve(t, group("app", dead+" max_fails=0", b, "keepalive off")+group("first", dead), late.String()+`
	proxy_pass /again first {
		next_upstream off
	}
	proxy_pass app {
`+early.String()+`
	}
	handle_errors {
`+latest.String()+`		proxy_pass app
	}`)
	for _, c := range []struct {
		target, end string
		want        map[string]string // what is the same each time
	}{
		{"/", "end_", map[string]string{
			"name": "app", "addr": dead + ", " + b, "status": "502, 200", "response_length": "0, 5",
			"bytes_sent": "0, SENT", "bytes_received": fmt.Sprintf("0, %d", len(answer)),
		}},
		{"/again", "error_end_", map[string]string{ // an internal redirect, to the second server
			"name": "first : app", "addr": dead + " : " + b, "status": "502 : 200", "response_length": "0 : 5",
			"bytes_sent": "0 : SENT", "bytes_received": fmt.Sprintf("0 : %d", len(answer)),
		}},
	} {
		res := p.post(c.target, []byte("body"))
		if res.Status != 200 && c.target == "/" {
			t.Fatalf("%s: status %d", c.target, res.Status)
		}
		line := p.access(c.target).Fields
		for _, name := range placeholders {
			logged, end := fmt.Sprint(line["upstream_"+name]), fmt.Sprint(line[c.end+name])
			if end != logged || logged == "" {
				t.Errorf("%s: {http.upstream.%s} is %q at the end, and %q in the access log", c.target, name, end, logged)
			}
			want, known := c.want[name]
			if want = strings.Replace(want, "SENT", fmt.Sprint(arrived.Load()), 1); known && logged != want {
				t.Errorf("%s: %s is %q, want %q", c.target, name, logged, want)
			}
			// With the header of the response, what is known by then.
			begun := res.Get("X-" + name)
			switch {
			case c.target != "/": // no header_down there
			case name == "response_time" && !regexp.MustCompile(`^\d+\.\d{3}, \d+\.\d{3}$`).MatchString(begun),
				name == "response_length" && begun != "0, 0",
				name == "bytes_received" && !regexp.MustCompile(`^0, \d+$`).MatchString(begun),
				!slices.Contains([]string{"response_time", "response_length", "bytes_received"}, name) && begun != logged:
				t.Errorf("%s: {http.upstream.%s} is %q with the header, and %q in the access log", c.target, name, begun, logged)
			}
		}
		checkTimes(t, c.target, line)
	}
}

// checkTimes checks the times of two tries, the first of them refused.
func checkTimes(t *testing.T, target string, line map[string]any) {
	t.Helper()
	var of [2]map[string]float64
	for i := range of {
		of[i] = map[string]float64{}
		for _, name := range []string{"connect_time", "header_time", "response_time"} {
			text := regexp.MustCompile(`, | : `).Split(fmt.Sprint(line["upstream_"+name]), -1)
			if len(text) != 2 {
				t.Fatalf("%s: %s is %q, want that of two tries", target, name, text)
			}
			if i == 0 && name != "response_time" {
				if text[0] != "-" {
					t.Errorf("%s: %s of a server that refuses is %q, want none", target, name, text[0])
				}
				continue
			}
			d, err := strconv.ParseFloat(text[i], 64)
			if err != nil || !aTime.MatchString(text[i]) {
				t.Errorf("%s: %s is %q: %v", target, name, text, err)
			}
			of[i][name] = d
		}
	}
	if second := of[1]; second["connect_time"] > second["header_time"] || second["header_time"] > second["response_time"] {
		t.Errorf("%s: times %v, want connecting before the header before the end", target, second)
	}
}
