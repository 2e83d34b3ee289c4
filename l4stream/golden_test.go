// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/pools"
)

var update = flag.Bool("update", false, "rewrite the JSON and the errors of the golden files; look at what changes")

// divider stands between the Caddyfile of a golden file and what it gives: the
// JSON that it adapts to or, in files that begin with `error_`, the error for
// which it is rejected.
const divider = "----------\n"

func TestCaddyfilesAdaptAsRecorded(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.caddyfiletest"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found %d golden files: %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".caddyfiletest")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), divider)
			got := testAdapted
			if strings.HasPrefix(name, "error_") {
				got = testRejected
			}
			if result := got(t, input); result != want {
				if *update {
					if err := os.WriteFile(path, []byte(input+divider+result), 0o644); err != nil {
						t.Fatal(err)
					}
					return
				}
				t.Errorf("what the Caddyfile gives is something else (-want +got):\n%s", cmp.Diff(want, result))
			}
		})
	}
}

func adapt(t *testing.T, input string) ([]byte, []caddyconfig.Warning, error) {
	t.Helper()
	return caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
}

func testAdapted(t *testing.T, input string) string {
	adapted, warnings, err := adapt(t, input)
	if err != nil {
		t.Fatalf("Adapt() = %v, want JSON", err)
	}
	for _, w := range warnings {
		t.Errorf("the adapter warns: %v", w)
	}
	roundTrip(t, adapted)
	provision(t, adapted)
	var out bytes.Buffer
	if err := json.Indent(&out, adapted, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

// position is where an error says that the mistake is.
var position = regexp.MustCompile(`Caddyfile:[1-9][0-9]*`)

func testRejected(t *testing.T, input string) string {
	adapted, _, err := adapt(t, input)
	if err == nil {
		t.Fatalf("Adapt() = %s, want an error", adapted)
	}
	text := err.Error()
	if strings.Contains(text, "\n") || !position.MatchString(text) {
		t.Errorf("the error is not one line with a position: %s", text)
	}
	return text + "\n"
}

// roundTrip decodes every handler of the configuration, strictly, and checks
// that encoding it gives the same again.
func roundTrip(t *testing.T, adapted []byte) {
	t.Helper()
	var config struct {
		Apps struct {
			Stream struct {
				Servers map[string]struct {
					Handle []map[string]any `json:"handle"`
				} `json:"servers"`
			} `json:"stream"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	for _, s := range config.Apps.Stream.Servers {
		for _, h := range s.Handle {
			again(t, h)
		}
	}
}

func again(t *testing.T, handler map[string]any) {
	t.Helper()
	info, err := caddy.GetModule("stream.handlers." + handler["handler"].(string))
	if err != nil {
		t.Fatal(err)
	}
	delete(handler, "handler")
	raw, err := json.Marshal(handler)
	if err != nil {
		t.Fatal(err)
	}
	mod := info.New()
	if err := caddy.StrictUnmarshalJSON(raw, mod); err != nil {
		t.Errorf("%s: %v", info.ID, err)
		return
	}
	encoded, err := json.Marshal(mod)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(handler, got); diff != "" {
		t.Errorf("%s is something else after decoding and encoding (-before +after):\n%s", info.ID, diff)
	}
}

// provision loads the configuration as `caddy validate` does, and looks at what
// is left when it is gone.
func provision(t *testing.T, adapted []byte) {
	t.Helper()
	if err := load(adapted); err != nil {
		t.Errorf("Validate() = %v", err)
	}
	for _, held := range pools.Held() {
		t.Errorf("still held after cleanup: %s", held)
	}
}

func load(config []byte) error {
	cfg := new(caddy.Config)
	if err := caddy.StrictUnmarshalJSON(config, cfg); err != nil {
		return err
	}
	cfg.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {
		BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"discard"}`)},
	}}}
	return caddy.Validate(cfg)
}

// Mistakes that only JSON can hold, or that show only when a configuration is
// loaded, name the server, the field, the value and the rule.
func TestConfigurationsThatAreRejectedWhenLoaded(t *testing.T) {
	server := func(fields string) string {
		return `{"apps":{"stream":{"servers":{"s":{` + fields + `}}}}}`
	}
	on := func(handlers string) string { return server(`"listen":["127.0.0.1:9"],"handle":[` + handlers + `]`) }
	for _, c := range []struct{ name, config, want string }{
		{"a null server", `{"apps":{"stream":{"servers":{"s":null}}}}`, "server s is null"},
		{"no address", server(`"handle":[{"handler":"return"}]`), "server s: listen is missing"},
		{"no port", server(`"listen":["127.0.0.1"],"handle":[{"handler":"return"}]`), "server s (127.0.0.1): listen 127.0.0.1: the port is missing"},
		{"no content", on(`{"handler":"ssl_preread"}`), "server s (127.0.0.1:9): no content handler: expected proxy_pass, return or pass"},
		{"two contents", on(`{"handler":"return"},{"handler":"return"}`), "server s (127.0.0.1:9): more than one content handler"},
		{"an unknown field", on(`{"handler":"return","txt":"x"}`), `unknown field "txt"`},
		{"an unknown handler", on(`{"handler":"retrun"}`), "unknown module: stream.handlers.retrun"},
		{"an unknown group", on(`{"handler":"proxy_pass","to":["nobody"]}`), `unknown group "nobody": the upstream app is not configured; an address needs a port`},
		{"a negative timeout", on(`{"handler":"proxy_pass","to":["127.0.0.1:1"],"timeout":-1}`), "timeouts must not be negative"},
		{"an unknown word", on(`{"handler":"proxy_pass","to":["127.0.0.1:1"],"next_upstream":"maybe"}`), `next_upstream "maybe": expected on or off`},
		{"a UDP option on TCP", on(`{"handler":"proxy_pass","to":["127.0.0.1:1"],"proxy_requests":1}`), "proxy_requests and proxy_responses go with udp/ addresses only"},
		{"a limit of 0", on(`{"handler":"limit_conn"},{"handler":"return"}`), "limit 0: expected 1 or more"},
		{"no network", on(`{"handler":"realip","from":[]},{"handler":"return"}`), "from: expected one or more trusted networks"},
		{"a bad variable", on(`{"handler":"set","name":"a.b"},{"handler":"return"}`), `variable name "a.b"`},
		{"a negative shutdown_timeout", `{"apps":{"stream":{"shutdown_timeout":-1}}}`, "shutdown_timeout -1ns: must not be negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := load([]byte(c.config))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v, want one line with %q", err, c.want)
			}
			for _, held := range pools.Held() {
				t.Errorf("still held after cleanup: %s", held)
			}
		})
	}
}
