// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile_test

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
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/go-cmp/cmp"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/caddy-upstream/caddy-upstream/internal/pools"

	_ "github.com/caddy-upstream/caddy-upstream/caddyfile"
	_ "github.com/caddy-upstream/caddy-upstream/leastconn"
	_ "github.com/caddy-upstream/caddy-upstream/modules/activehealth"
	_ "github.com/caddy-upstream/caddy-upstream/modules/resolve"
	_ "github.com/caddy-upstream/caddy-upstream/modules/sticky"
)

var (
	update       = flag.Bool("update", false, "rewrite the JSON of the golden files")
	updateErrors = flag.Bool("update-errors", false, "rewrite the error texts of the golden files, and show each that changes")
)

// divider stands between the Caddyfile of a golden file and what it gives.
const divider = "----------\n"

// golden is a file of testdata: a Caddyfile, and the JSON that it adapts to; or
// the error for which it is rejected, if the name begins with `error_`; or that of
// loading what it adapts to, with `load_error_`.
type golden struct {
	path, input, want string
}

func readGolden(t *testing.T, path string) *golden {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	input, want, ok := strings.Cut(string(text), divider)
	if !ok {
		t.Fatalf("there is no line of ten dashes in %s", path)
	}
	return &golden{path, input, want}
}

func (g *golden) is(prefix string) bool { return strings.HasPrefix(filepath.Base(g.path), prefix) }

func (g *golden) write(t *testing.T, want string) {
	t.Helper()
	if err := os.WriteFile(g.path, []byte(g.input+divider+want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// adapt runs Caddy's own adapter.
func adapt(t *testing.T, input string) ([]byte, []caddyconfig.Warning, error) {
	t.Helper()
	adapter := caddyconfig.GetAdapter("caddyfile")
	if adapter == nil {
		t.Fatal("there is no adapter for Caddyfiles")
	}
	return adapter.Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
}

func TestCaddyfilesAdaptAsRecorded(t *testing.T) {
	t.Setenv("GOLDEN_ADDRESS", "127.0.0.1:9001")
	t.Setenv("GOLDEN_HOST", "127.0.0.1")
	dir := certificates(t)
	t.Setenv("GOLDEN_DIR", dir)
	paths, err := filepath.Glob(filepath.Join("testdata", "*.caddyfiletest"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found %d golden files: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".caddyfiletest"), func(t *testing.T) {
			g := readGolden(t, path)
			switch {
			case g.is("error_"):
				g.testRejected(t)
			case g.is("load_error_"):
				g.testNotLoaded(t)
			default:
				g.testAdapted(t, dir)
			}
		})
	}
}

// adapted is what a Caddyfile without a mistake of its own adapts to.
func (g *golden) adapted(t *testing.T) []byte {
	t.Helper()
	adapted, warnings, err := adapt(t, g.input)
	if err != nil {
		t.Fatalf("Adapt() = %v, want JSON", err)
	}
	for _, w := range warnings {
		if *update && strings.Contains(w.Message, "not formatted") {
			g.input = string(caddyfile.Format([]byte(g.input)))
			continue
		}
		t.Errorf("the adapter warns: %v", w)
	}
	roundTrip(t, adapted)
	return adapted
}

func (g *golden) testAdapted(t *testing.T, dir string) {
	adapted := g.adapted(t)
	var b bytes.Buffer
	if err := json.Indent(&b, adapted, "", "\t"); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(b.String()+"\n", dir, "{$GOLDEN_DIR}")
	if got != g.want {
		if *update {
			g.write(t, got)
		} else {
			t.Errorf("Adapt() gives other JSON (-want +got):\n%s", cmp.Diff(g.want, got))
		}
	}
	if !strings.Contains(g.input, "tls_client_auth client.example.com") { // Caddy would ask for the certificate
		provision(t, adapted)
	}
}

// testNotLoaded is for mistakes that no part of a Caddyfile shows alone, where Caddy
// calls nothing of ours with all of it.
func (g *golden) testNotLoaded(t *testing.T) {
	g.testError(t, "Validate()", load(g.adapted(t)))
	nothingHeld(t)
}

// position is where an error says that the mistake is.
var position = regexp.MustCompile(`Caddyfile:[1-9][0-9]*`)

func (g *golden) testRejected(t *testing.T) {
	_, _, err := adapt(t, g.input)
	g.testError(t, "Adapt()", err)
	if !position.MatchString(g.want) {
		t.Errorf("the error does not say where: %s", g.want)
	}
}

// testError checks that what was called gave the error of the file, in one line.
func (g *golden) testError(t *testing.T, called string, err error) {
	t.Helper()
	want := strings.TrimSuffix(g.want, "\n")
	switch {
	case err == nil:
		t.Errorf("%s finds nothing, want the error %s", called, want)
	case err.Error() != want && *updateErrors:
		t.Logf("was: %s\nnow: %v", want, err)
		g.write(t, err.Error()+"\n")
	case err.Error() != want:
		t.Errorf("%s = %v\nwant %s", called, err, want)
	case strings.Contains(want, "\n"):
		t.Errorf("the error has more than one line: %s", want)
	}
}

// provision loads the configuration as `caddy validate` does, and looks at
// what is left when it is gone.
func provision(t *testing.T, adapted []byte) {
	t.Helper()
	if err := load(adapted); err != nil {
		t.Errorf("Validate() = %v", err)
	}
	nothingHeld(t)
}

func nothingHeld(t *testing.T) {
	t.Helper()
	for _, held := range append(pools.Held(), proxyHosts(t)...) {
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
