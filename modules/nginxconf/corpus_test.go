// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/go-cmp/cmp"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-upstream/caddy-upstream/leastconn"
	_ "github.com/caddy-upstream/caddy-upstream/modules/iphash"
	_ "github.com/caddy-upstream/caddy-upstream/passivehealth"
	_ "github.com/caddy-upstream/caddy-upstream/smoothrr"
)

var update = flag.Bool("update", false, "write what comes out into the files of the corpus")

const divider = "----------\n"

// outcome is what the adapter makes of a text: warnings, and JSON or an error.
func outcome(text string) (string, []byte) {
	out, warnings, err := Adapter{}.Adapt([]byte(text), map[string]any{"filename": "/etc/nginx/nginx.conf"})
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning: %s:%d: %s: %s\n", w.File, w.Line, w.Directive, w.Message)
	}
	if err != nil {
		return b.String() + err.Error() + "\n", nil
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, out, "", "\t"); err != nil {
		return "not JSON: " + err.Error(), nil
	}
	return b.String() + pretty.String() + "\n", out
}

func TestEveryConfigurationOfTheCorpusAdaptsAsWritten(t *testing.T) {
	files, err := filepath.Glob("testdata/*.conftest")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d files, want at least 60: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".conftest"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, want, _ := strings.Cut(string(text), divider)
			got, adapted := outcome(config)
			if *update {
				if err := os.WriteFile(file, []byte(config+divider+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
			wrong := strings.HasPrefix(filepath.Base(file), "error_")
			if wrong == (adapted != nil) {
				t.Fatalf("adapted = %v, want %v:\n%s", adapted != nil, !wrong, got)
			}
			if adapted != nil && !strings.Contains(string(adapted), ".pem") {
				provision(t, adapted)
			}
		})
	}
}

// provision loads a configuration as Caddy does, strictly, without starting it.
func provision(t *testing.T, adapted []byte) {
	t.Helper()
	adapted = bytes.ReplaceAll(adapted, []byte("/etc/nginx"), []byte(t.TempDir()))
	adapted = bytes.ReplaceAll(adapted, []byte("/var/log"), []byte(t.TempDir()))
	var config *caddy.Config
	if err := caddy.StrictUnmarshalJSON(adapted, &config); err != nil {
		t.Fatalf("strict JSON: %v", err)
	}
	if err := caddy.Validate(config); err != nil {
		t.Fatalf("provision: %v\n%s", err, adapted)
	}
}
