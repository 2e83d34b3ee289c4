// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// What is accepted must be JSON that decodes, and nothing may panic.
func FuzzCaddyfile(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.caddyfiletest"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(text), "stream {\n")
		body, _, _ = strings.Cut(body, "\t}\n}\n----------")
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "import") {
			return // of files
		}
		adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nstream {\n"+body+"\n}\n}\n"), map[string]any{"filename": "Caddyfile"})
		if err != nil {
			return
		}
		if err := caddy.StrictUnmarshalJSON(adapted, new(caddy.Config)); err != nil {
			t.Errorf("%v in %s", err, adapted)
		}
	})
}
