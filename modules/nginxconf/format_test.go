// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	_ "github.com/caddy-upstream/caddy-upstream/caddyfile"
	"github.com/caddy-upstream/caddy-upstream/l4stream"
)

const printedConf = `events {}
http {
	upstream app {
		least_conn;
		server 10.0.0.1:8080 weight=3 max_fails=2 fail_timeout=30s;
		server unix:/run/a.sock backup;
		keepalive 16;
	}
	server {
		listen 127.0.0.1:8080;
		server_name example.com www.example.com;
		proxy_set_header Host $host;
		proxy_set_header X-Real-IP $remote_addr;
		proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		location / { proxy_pass http://app; proxy_read_timeout 5m; proxy_next_upstream error http_502; }
		location /api/ { proxy_pass http://10.0.0.9:81; proxy_set_header X-Key value; proxy_buffering off; }
		location = /ok { return 200 fine; }
	}
}
`

const printedCaddyfile = `{
	admin off
	auto_https off
	upstream app {
		least_conn
		server 10.0.0.1:8080 fail_timeout=30s max_fails=2 weight=3
		server unix//run/a.sock backup
		single_counts_down on
		keepalive 16
		keepalive_stale fail
	}
}

http://:8080 {
	bind 127.0.0.1
	handle {
		request_body {
			max_size 1048576
		}
		proxy_pass app {
			read_timeout 5m0s
			next_upstream error http_502
			header_up X-Real-IP {http.request.remote.host}
			header_up Host {http.request.host}
		}
	}
	redir /api {http.request.scheme}://{http.request.host}:8080/api/{http.request.uri.prefixed_query} 301
	handle /api/* {
		request_body {
			max_size 1048576
		}
		proxy_pass 10.0.0.9:81 {
			keepalive off
			flush_interval -1
			header_up X-Key value
			header_up Host 10.0.0.9:81
		}
	}
	handle /ok {
		header Content-Type text/plain
		respond "fine" 200
	}
}
`

func TestAPlainConfigurationIsPrintedAsACaddyfile(t *testing.T) {
	got, err := Caddyfile([]byte(printedConf), "nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(printedCaddyfile, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	out, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(got), map[string]any{"filename": "Caddyfile"})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("the Caddyfile does not adapt: %v, %v\n%s", err, warnings, got)
	}
	direct, _, err := Adapter{}.Adapt([]byte(printedConf), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameGroups(t, direct, out)
	sameStream(t, direct, out)
}

// sameStream compares the stream apps, whose servers and handlers may be in
// another order as far as that means nothing, and their logs.
func sameStream(t *testing.T, direct, printed []byte) {
	t.Helper()
	if diff := cmp.Diff(streamOf(t, direct), streamOf(t, printed), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("adapter -, Caddyfile +\n%s\n%s", diff, printed)
	}
}

// streamOf is the stream app: its servers in their order, the handlers of each
// by phase, and the logs.
func streamOf(t *testing.T, config []byte) (out []any) {
	t.Helper()
	var c struct {
		Logging struct{ Logs map[string]map[string]any }
		Apps    struct {
			Stream struct {
				Servers map[string]map[string]any
			}
		}
	}
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	servers := c.Apps.Stream.Servers
	for _, name := range slices.SortedFunc(maps.Keys(servers), func(a, b string) int { return cmpNumber(a) - cmpNumber(b) }) {
		s := servers[name]
		handlers, _ := s["handle"].([]any)
		slices.SortStableFunc(handlers, func(a, b any) int { return phaseOf(t, a) - phaseOf(t, b) })
		for _, h := range handlers {
			policies, _ := h.(map[string]any)["connection_policies"].([]any)
			for _, p := range policies {
				delete(p.(map[string]any), "protocol_min") // 1.2 is the default
			}
		}
		out = append(out, s)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Logging.Logs)) {
		if l := c.Logging.Logs[name]; strings.HasPrefix(fmt.Sprint(l["include"]), "[stream.") {
			out = append(out, name, l)
		}
	}
	return out
}

// cmpNumber is the number at the end of a server's name.
func cmpNumber(name string) (n int) {
	_, _ = fmt.Sscanf(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz"), "%d", &n)
	return n
}

func phaseOf(t *testing.T, handler any) int {
	t.Helper()
	info, err := caddy.GetModule("stream.handlers." + handler.(map[string]any)["handler"].(string))
	if err != nil {
		t.Fatal(err)
	}
	return int(info.New().(l4stream.Handler).Phase())
}

// sameGroups compares the groups that the adapter makes with those of a
// Caddyfile, where proxy_pass to an address makes its own at run time.
func sameGroups(t *testing.T, direct, printed []byte) {
	t.Helper()
	want, got := servers(t, direct), servers(t, printed)
	for name := range want {
		if _, ok := got[name]; !ok {
			delete(want, name)
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("adapter -, Caddyfile +\n%s", diff)
	}
}

// servers are the groups of a configuration that have names of their own.
func servers(t *testing.T, config []byte) map[string]any {
	t.Helper()
	var c struct {
		Apps struct {
			Upstream struct{ Groups map[string]any }
		}
	}
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	return c.Apps.Upstream.Groups
}

// What is printed of the corpus has to be right, and what is not has to be said.
func TestTheCorpusIsPrintedWithTheSameGroupsOrRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/*.conftest")
	if err != nil {
		t.Fatal(err)
	}
	printed := 0
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "error_") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".conftest"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, _, _ := strings.Cut(string(text), divider)
			out, err := Caddyfile([]byte(config), "/etc/nginx/nginx.conf")
			if err != nil {
				for line := range strings.SplitSeq(err.Error(), "\n") {
					if !strings.Contains(line, "has no form in a Caddyfile here") {
						t.Errorf("an error that does not say so: %s", line)
					}
				}
				return
			}
			printed++
			again, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(out), map[string]any{"filename": "Caddyfile"})
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			direct, _, err := Adapter{}.Adapt([]byte(config), map[string]any{"filename": "/etc/nginx/nginx.conf"})
			if err != nil {
				t.Fatal(err)
			}
			direct = ofNginx.ReplaceAllFunc(direct, func(v []byte) []byte {
				return []byte(ownPlaceholder(string(ofNginx.FindSubmatch(v)[1])))
			})
			sameGroups(t, direct, again)
			sameStream(t, direct, again)
			if !strings.Contains(out, ".pem") {
				provision(t, again)
			}
		})
	}
	if printed < 10 {
		t.Errorf("%d of the corpus are printed, want at least 10", printed)
	}
}

func TestWhatHasNoFormInACaddyfileIsNamed(t *testing.T) {
	for body, want := range map[string]string{
		"http { server { listen 127.0.0.1:80; location ~ x { return 200; } } }":                                             "nginx.conf:1: location: this location",
		"http { server { listen 127.0.0.1:80; add_header X-A b; location / { return 200; } } }":                             "add_header",
		"http { server { listen 127.0.0.1:80; location / { proxy_pass http://10.0.0.1/x; } } }":                             "a path or a variable in proxy_pass",
		"stream { server { listen 127.0.0.1:80; proxy_pass 10.0.0.1:1; proxy_buffer_size 100; } }":                          "proxy_buffer_size below 512",
		"stream { server { listen 127.0.0.1:80; return \"a`\\\\\"; } }":                                                     "has no form",
		"http { server { listen 127.0.0.1:80; location /a { return 200; } } }":                                              "a server without location /",
		"http { server { listen 127.0.0.1:80; return 200; } server { listen 127.0.0.1:80; server_name *.b; return 200; } }": "server_name \"*.b\"",
		"http { server { listen 127.0.0.1:80 proxy_protocol; return 200; } }":                                               "this listen",
		"http { server { listen 127.0.0.1:80; listen 127.0.0.1:81; return 301 /x; } }":                                      "several ports",
		"http { server { listen 127.0.0.1:80; rewrite ^/(.*)$ /x/$1 permanent; } }":                                         "$1 has no form",
		"http { server { listen 127.0.0.1:80; rewrite ^/a /x permanent; } }":                                                "rewrite rules",
		"http { server { listen 127.0.0.1:80 ssl; ssl_reject_handshake on; } }":                                             "ssl_reject_handshake",
		"http { upstream a { hash $pid; server 10.0.0.1; } server { listen 127.0.0.1:80; return 200; } }":                   "$pid has no form",
		"http { server { listen 127.0.0.1:80; rewrite ^ /x; } }":                                                            "rewrite rules",
		"http { frobnicate; }": "frobnicate",
	} {
		if out, err := Caddyfile([]byte(body), "nginx.conf"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Caddyfile(%s) = %q, %v, want an error with %q", body, out, err, want)
		}
	}
}

const everythingOfStream = `stream {
	log_format plain '$remote_addr "$ssl_preread_server_name" $status';
	log_format json escape=json '{"a": "$remote_addr"}';
	resolver 127.0.0.1 valid=10s;
	upstream names { zone names 1m; server a.example:80 resolve; }
	upstream hashed { hash "$remote_addr x" consistent; server 10.0.0.1:1 weight=2; server 10.0.0.2:1 down; }
	map $ssl_preread_server_name $to { hostnames; default hashed; .a.example names; '' "10.0.0.3:1"; }
	map $remote_addr $text { ~^10\.(?<rest>.*)$ "ten $rest"; default "a # {b} it's"; volatile; }
	geo $area { default out; 10.0.0.0/8 "in side"; }
	geo $remote_addr $range { ranges; default x; 10.0.0.0-10.0.0.255 y; 10.0.0.7-10.0.0.9 z; delete 10.0.0.7-10.0.0.9; }
	split_clients "$remote_addr$remote_port" $half { 50% "one half"; * ""; }
	limit_conn_zone $binary_remote_addr zone=per:1m;
	server { listen 127.0.0.1:1; ssl_preread on; proxy_pass $to; access_log a.log plain if=$half; access_log /dev/stdout json; access_log a.gz plain gzip=3 buffer=2k flush=1s; }
	server { listen 127.0.0.1:2 proxy_protocol; proxy_protocol_timeout 3s; set_real_ip_from 10.0.0.0/8; set_real_ip_from unix:; allow 10.0.0.0/8; deny unix:; deny all;
		set $x "a $remote_addr b"; limit_conn per 3; limit_conn_dry_run on; return "$x\n$text $area $range $half \"quoted\"\t"; preread_buffer_size 32k; preread_timeout 7s; }
	server { listen 127.0.0.1:3 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; ssl_certificate b.pem; ssl_certificate_key b.key; ssl_password_file pass; ssl_alpn h2 "a b"; ssl_protocols TLSv1.2;
		ssl_verify_client on; ssl_client_certificate ca.pem; ssl_trusted_certificate more.pem; ssl_crl crl.pem; ssl_handshake_timeout 4s; pass 127.0.0.1:1; }
	server { listen 127.0.0.1:4 ssl; ssl_reject_handshake on; return no; }
	server { listen 127.0.0.1:5; listen [::1]:5; listen unix:/run/x.sock; proxy_pass hashed; proxy_connect_timeout 1s; proxy_timeout 2s; proxy_next_upstream off; proxy_next_upstream_tries 2; proxy_next_upstream_timeout 3s;
		proxy_half_close on; proxy_upload_rate 1k; proxy_download_rate $half; proxy_buffer_size 8k; proxy_bind $remote_addr; proxy_protocol v2; proxy_socket_keepalive on; tcp_nodelay off; }
	server { listen 127.0.0.1:6 udp; proxy_pass 10.0.0.1:53; proxy_requests 1; proxy_responses 0; }
	server { listen 127.0.0.1:7; proxy_pass 10.0.0.1:$server_port; proxy_ssl on; proxy_ssl_name $ssl_preread_server_name; ssl_preread on; proxy_ssl_session_reuse off; proxy_ssl_server_name on; proxy_ssl_alpn h2 $half; proxy_ssl_verify on;
		proxy_ssl_trusted_certificate ca.pem; proxy_ssl_crl crl.pem; proxy_ssl_certificate c.pem; proxy_ssl_certificate_key c.key; proxy_ssl_password_file pass; }
	server { listen 127.0.0.1:8; server_name a.example; ssl_preread on; return a; }
	server { listen 127.0.0.1:8; server_name "" ~^b\d+ *.c.example .d.example e.*; ssl_preread on; return ""; }
	server { listen 127.0.0.1:8 default_server; server_name f.example; ssl_preread on; return f; }
	server { listen 127.0.0.1:9; return 9; } server { listen 127.0.0.1:10; return 10; } server { listen 127.0.0.1:11; return 11; }
}
`

func TestWhatIsPrintedOfStreamIsTheSameApp(t *testing.T) {
	out, err := Caddyfile([]byte(everythingOfStream), "/etc/nginx/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(out), map[string]any{"filename": "Caddyfile"})
	if err != nil { // that a text with lines is not formatted is a warning
		t.Fatalf("%v\n%s", err, out)
	}
	direct, _, err := Adapter{}.Adapt([]byte(everythingOfStream), map[string]any{"filename": "/etc/nginx/nginx.conf"})
	if err != nil {
		t.Fatal(err)
	}
	sameGroups(t, direct, again)
	sameStream(t, direct, again)
	if servers := streamOf(t, direct); len(servers) < 12 {
		t.Errorf("%d servers are compared", len(servers))
	}
}
