// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// The methods that choose by a key, as nginx and as Caddy write them.
var keyed = []struct{ name, nginx, caddy string }{
	{"plain", "hash $arg_k", "hash {http.request.uri.query.k}"},
	{"consistent", "hash $arg_k consistent", "hash {http.request.uri.query.k} consistent"},
	{"iphash", "ip_hash", "ip_hash"},
}

// TestKeysReachTheServersThatDebiansNginxChooses asks for 1,000 keys (and client
// addresses) over seven servers of mixed weights.
func TestKeysReachTheServersThatDebiansNginxChooses(t *testing.T) {
	t.Parallel()
	b := backends(t, 7)
	var nginx, groups, locations, site strings.Builder
	for _, m := range keyed {
		fmt.Fprintf(&nginx, "upstream %s {\n%s;\n", m.name, m.nginx)
		lines := []string{m.caddy}
		for i, weight := range []int{1, 2, 3, 1, 5, 1, 4} {
			line := fmt.Sprintf("%s weight=%d max_fails=0", b[i].Addr(), weight)
			lines = append(lines, line)
			fmt.Fprintf(&nginx, "server %s;\n", line)
		}
		nginx.WriteString("}\n")
		groups.WriteString(group(m.name, lines...))
		fmt.Fprintf(&locations, "location /%s { proxy_pass http://%s; proxy_http_version 1.1; proxy_set_header Connection ''; }\n", m.name, m.name)
		fmt.Fprintf(&site, "\tproxy_pass /%s %s\n", m.name, m.name)
	}
	n := testnet.StartNginx(t, "events {}\nhttp {\naccess_log off;\nset_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;\n"+
		nginx.String()+"server { listen 127.0.0.1:{{port \"front\"}};\n"+locations.String()+"} }", nil)
	p := serve(t, "\tservers {\n\t\ttrusted_proxies static 127.0.0.1\n\t}\n"+groups.String(), site.String())
	client := &http.Client{}
	defer client.CloseIdleConnections()
	ask := func(base, target string, i int) string {
		t.Helper()
		req, err := http.NewRequest("GET", base+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", fmt.Sprintf("%d.%d.%d.9", 11+i%89, i%251, i/4))
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: status %d, %v", target, res.StatusCode, err)
		}
		return string(bytes.TrimSpace(body))
	}
	for _, m := range keyed {
		differ, reached := 0, map[string]int{}
		for i := range 1000 {
			target := fmt.Sprintf("/%s?k=key-%d", m.name, i*7919)
			want, got := ask("http://"+n.Addr("front"), target, i), ask(p.URL("front"), target, i)
			if reached[got]++; got != want {
				differ++
			}
		}
		if differ > 0 || len(reached) != 7 {
			t.Errorf("%s: %d of 1000 keys at other servers than with nginx; %v", m.name, differ, reached)
		}
	}
}

func TestAKeyReachesTheSameServerOverHTTPAndOverStream(t *testing.T) {
	t.Parallel()
	b := backends(t, 5)
	for _, method := range []string{"hash %s", "hash %s consistent"} {
		lines := func(key string) []string {
			out := []string{fmt.Sprintf(method, key)}
			for i, x := range b {
				out = append(out, fmt.Sprintf("%s weight=%d", x.Addr(), i+1))
			}
			return out
		}
		p := serve(t, group("web", lines("{http.request.uri.query.k}")...)+group("tcp", lines("{stream.proxy_protocol_addr}")...)+`
	stream {
		server `+front("tcp")+` {
			proxy_protocol require
			proxy_pass tcp
		}
	}
`, "\tproxy_pass web")
		reached := map[string]bool{}
		for i := range 50 {
			key := fmt.Sprintf("198.51.100.%d", i+1)
			web := p.get("/?k=" + key).Text()
			s := p.tcp("tcp")
			s.say("PROXY TCP4 " + key + " 192.0.2.9 4567 80\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			answer := s.rest()
			if got := answer[strings.LastIndex(answer, "\n")+1:]; got != web {
				t.Errorf("%s: %s reaches %s over HTTP and %q over stream", method, key, web, got)
			}
			reached[web] = true
		}
		if len(reached) != 5 {
			t.Errorf("%s: 50 keys reach only %v", method, reached)
		}
	}
}

func TestAHashKeyOfTheOtherFrontIsWarnedOf(t *testing.T) {
	t.Parallel()
	p := serve(t, group("app", "127.0.0.1:9", "hash {stream.remote_addr}{http.vars.client_ip}")+`
	stream {
		server `+front("tcp")+` {
			proxy_pass app
		}
	}
`, "\tproxy_pass app")
	const msg = "a placeholder in the hash key does not exist where the group is used: it is empty"
	p.WaitLog(t, msg, map[string]any{"group": "app", "used_by": "http", "placeholder": "stream.remote_addr"})
	p.WaitLog(t, msg, map[string]any{"group": "app", "used_by": "stream", "placeholder": "http.vars.client_ip"})
	if n := len(p.Logs(msg)); n != 2 {
		t.Errorf("%d warnings, want 2", n)
	}
}

// A misspelt name is empty for every client: all of them reach one server.
func TestAMisspeltPlaceholderInAHashKeyIsWarnedOf(t *testing.T) {
	t.Parallel()
	p := serve(t, group("web", "127.0.0.1:9", "hash {http.reqest.uri}{http.request.hots}{http.request.uri.query.k}{http.vars.x}")+
		group("tcp", "127.0.0.1:9", "hash {stream.remote_adr}{stream.remote_addr}{stream.vars.client}{stream.vars.clint}{stream.proxy_protocol_tlv_nosuch}{stream.proxy_protocol_tlv_authority}{stream.upstream_addr}{env.HOME}")+
		group("named", "127.0.0.1:9", "hash {stream.ssl_preread_servername}")+`
	stream {
		server `+front("tcp")+` {
			proxy_pass tcp
			map {stream.remote_addr} client {
				default other
			}
		}
		server `+front("named")+` {
			set group named
			proxy_pass {stream.vars.group}
		}
	}
`, "\tproxy_pass web")
	_ = p.tcp("named").rest() // groups that placeholders name are found with the first session
	const msg = "a placeholder in the hash key does not exist where the group is used: it is empty"
	want := []string{
		"web http http.reqest.uri", "web http http.request.hots",
		"tcp stream stream.remote_adr", "tcp stream stream.vars.clint", "tcp stream stream.proxy_protocol_tlv_nosuch",
		"tcp stream stream.upstream_addr", "named stream stream.ssl_preread_servername",
	}
	var got []string
	for _, l := range p.logs(msg, "", len(want)) {
		got = append(got, fmt.Sprint(l.Fields["group"], " ", l.Fields["used_by"], " ", l.Fields["placeholder"]))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("warnings of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
