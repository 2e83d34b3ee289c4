// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// outcomes are what the headers of the examples promise: the bodies of
// requests to :8080, one after the other.
var outcomes = map[string][]struct {
	targets string
	want    string // letters stand for the bodies if the example answers with ports
}{
	"quickstart": {{"/ / / / / / /", "a a b a c a a"}},
	"weights":    {{"/ / / / / / /", "a a b a a a a"}, {"/ / / / / /", "a a a b a a"}},
	"leastconn":  {{"/ / / /", "a b a b"}, {"/last /last /last /last", "c c c c"}},
	"keepalive": {
		{"/shared/a /shared/b /shared/a", "p p p"}, {"/local/a /local/b /local/a", "p q p"},
		{"/default/a /default/b /default/a", "p q p"}, {"/off/a /off/b /off/a", "p q r"},
	},
}

func TestEveryExampleShowsWhatItsHeaderSays(t *testing.T) {
	for _, path := range find(t, ".") {
		expected, ok := outcomes[filepath.Dir(path)]
		if !ok {
			continue
		}
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			config, ports := exchangePorts(untrusted(t, check(t, path)))
			c := testnet.StartCaddy(t, config, nil)
			for _, e := range expected {
				var got []string
				for _, target := range strings.Fields(e.targets) {
					got = append(got, testnet.Get(t, c.URL(ports["8080"])+target).Text())
				}
				if strings.HasPrefix(e.want, "p") {
					got = letters(got)
				}
				if got := strings.Join(got, " "); got != e.want {
					t.Errorf("%s: answers %s, want %s", e.targets, got, e.want)
				}
			}
		})
	}
}

// letters replaces each value by a letter, in order of appearance: p, q, r.
func letters(values []string) []string {
	seen := map[string]string{}
	out := make([]string, len(values))
	for i, v := range values {
		if seen[v] == "" {
			seen[v] = string(rune('p' + len(seen)))
		}
		out[i] = seen[v]
	}
	return out
}

func TestTheJSONFormOfAnExampleSaysTheSame(t *testing.T) {
	pairs := 0
	for _, path := range find(t, ".") {
		file := filepath.Join(filepath.Dir(path), "caddy.json")
		if filepath.Base(path) != "Caddyfile" {
			continue
		}
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		pairs++
		var adapted, written any
		if err := json.Unmarshal(check(t, path), &adapted); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &written); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(adapted, written); diff != "" {
			t.Errorf("%s (-) and %s (+) differ:\n%s", path, file, diff)
		}
	}
	if pairs < 3 {
		t.Errorf("%d examples have both forms, want at least 3", pairs)
	}
}
