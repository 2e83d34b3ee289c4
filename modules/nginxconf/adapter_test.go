// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/go-cmp/cmp"
)

// FuzzAdapt: no input makes the adapter panic, and what it accepts is a
// configuration with at least one server.
func FuzzAdapt(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conftest")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		config, _, _ := strings.Cut(string(text), divider)
		f.Add(config)
	}
	lookup = func(string) ([]string, error) { return []string{"192.0.2.1"}, nil }
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // reads files
		}
		out, _, err := Adapter{}.Adapt([]byte(text), nil)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a text")
			}
			return
		}
		var config *caddy.Config
		if err := caddy.StrictUnmarshalJSON(out, &config); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		if len(config.AppsRaw) == 0 || strings.Contains(string(out), `"servers":{}`) {
			t.Fatalf("an empty configuration from %q", text)
		}
	})
}

func TestIncludedFilesAreReadWhereTheyStand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("sites/a.conf", "server { listen 127.0.0.1:81; include proxy.inc; }\n")
	write("sites/b.conf", "server { listen 127.0.0.1:82; include proxy.inc; }\n")
	write("proxy.inc", "location / { proxy_pass http://$to; }\n")
	write("values.map", "b 10.0.0.2;\n# comment\nc 10.0.0.3;\n")
	write("mime.types", "types { text/html html htm; }\n")
	write("bad.conf", "server {\n listen 127.0.0.1:83;\n frobnicate on;\n}\n")
	adapt := func(body string) (string, error) {
		out, _, err := Adapter{}.Adapt([]byte(body), map[string]any{"filename": filepath.Join(dir, "nginx.conf")})
		return string(out), err
	}

	out, err := adapt("http { include mime.types; map $arg_a $to { default 10.0.0.1; include values.map; } include sites/*.conf; }")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"127.0.0.1:81"`, `"127.0.0.1:82"`, `"10.0.0.3:80"`, `"htm":"text/html"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in %s", want, out)
		}
	}
	for body, want := range map[string]string{
		"http { include bad.conf; }":                                          "bad.conf:3: frobnicate",
		"http { include none.conf; }":                                         "nginx.conf:1:",
		"http { map $arg_a $x { include none.map; } server { return 200; } }": "include:",
	} {
		if _, err := adapt(body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("adapt(%s) = %v, want an error with %q", body, err, want)
		}
	}
}

func TestTimesAndSizesAreReadAsNginxReadsThem(t *testing.T) {
	times := map[string]string{
		"60": "1m0s", "500ms": "500ms", "1h 30m": "1h30m0s", "1h30m": "1h30m0s", "1d": "24h0m0s", "0": "0s",
		"": "error", "5x": "error", "m": "error", "-1": "error", "99999999999999999999": "error", "99999999999y": "error",
	}
	for in, want := range times {
		got := "error"
		if d, err := parseTime(in); err == nil {
			got = d.String()
		}
		if got != want {
			t.Errorf("parseTime(%q) = %s, want %s", in, got, want)
		}
	}
	sizes := map[string]int64{"0": 0, "8192": 8192, "8k": 8192, "1M": 1 << 20, "2g": 2 << 30, "": -1, "k": -1, "9999999999g": -1, "-1": -1}
	for in, want := range sizes {
		got, err := parseSize(in)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("parseSize(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestVariablesBecomePlaceholders(t *testing.T) {
	got := map[string]string{}
	for _, in := range []string{"a$host:b", "${host}x", "$1$2", "{$x}", "cost $ 5", "$", "${", "${}", "$proxy_host", "$HOST"} {
		got[in] = template(in, map[string]string{"proxy_host": "app"})
	}
	want := map[string]string{
		"a$host:b": "a{nginx.host}:b", "${host}x": "{nginx.host}x", "$1$2": "{nginx.1}{nginx.2}", "{$x}": `\{{nginx.x}\}`,
		"cost $ 5": "cost $ 5", "$": "$", "${": `$\{`, "${}": `$\{\}`, "$proxy_host": "app", "$HOST": "{nginx.host}",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestTheConfigurationIsNotEscapedForHTML(t *testing.T) {
	for in, want := range map[string]string{
		`"a\u003cb\u003e\u0026"`: `"a<b>&"`, `"\\u003c"`: `"\\u003c"`, `"\\\u003c"`: `"\\<"`, `"\u00e9\n\""`: `"\u00e9\n\""`, `"\`: `"\`,
	} {
		if got := string(readable([]byte(in))); got != want {
			t.Errorf("readable(%s) = %s, want %s", in, got, want)
		}
	}
}
