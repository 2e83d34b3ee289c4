// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	_ "github.com/caddy-upstream/caddy-upstream/caddyfile"
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

http://example.com:8080, http://www.example.com:8080 {
	bind 127.0.0.1
	handle {
		request_body {
			max_size 1048576
		}
		proxy_pass app {
			read_timeout 5m0s
			next_upstream error http_502
			header_up X-Real-IP {http.request.remote.host}
		}
	}
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
			provision(t, again)
		})
	}
	if printed < 10 {
		t.Errorf("%d of the corpus are printed, want at least 10", printed)
	}
}

func TestWhatHasNoFormInACaddyfileIsNamed(t *testing.T) {
	for body, want := range map[string]string{
		"http { server { listen 127.0.0.1:80; location ~ x { return 200; } } }":                           "nginx.conf:1: location: this location",
		"http { server { listen 127.0.0.1:80; add_header X-A b; location / { return 200; } } }":           "add_header",
		"http { server { listen 127.0.0.1:80; location / { proxy_pass http://10.0.0.1/x; } } }":           "a path or a variable in proxy_pass",
		"stream { server { listen 127.0.0.1:80; return x; } }":                                            "stream",
		"http { upstream a { hash $pid; server 10.0.0.1; } server { listen 127.0.0.1:80; return 200; } }": "$pid has no form",
		"http { server { listen 127.0.0.1:80; rewrite ^ /x; } }":                                          "rewrite rules",
		"http { frobnicate; }": "frobnicate",
	} {
		if out, err := Caddyfile([]byte(body), "nginx.conf"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Caddyfile(%s) = %q, %v, want an error with %q", body, out, err, want)
		}
	}
}
