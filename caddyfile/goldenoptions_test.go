// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/modules/nextupstream"
	"github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)

// blocks calls f with the first word of each line that stands in a block whose own
// line begins with head.
func blocks(text, head string, f func(option string)) {
	within := -1
	for line := range strings.Lines(text) {
		rest := strings.TrimLeft(line, "\t")
		depth := len(line) - len(rest)
		switch words := strings.Fields(rest); {
		case within >= 0 && depth == within+1 && len(words) > 0:
			f(words[0])
		case within >= 0 && depth <= within:
			within = -1
		}
		if strings.HasPrefix(rest, head) && strings.HasSuffix(rest, "{\n") {
			within = depth
		}
	}
}

func TestEveryOptionOfEachFormHasGoldenFilesThatAreRightAndWrong(t *testing.T) {
	next := slices.Collect(maps.Keys(new(nextupstream.Transport).Options(false)))
	prefixed := slices.Collect(maps.Keys(new(nextupstream.Transport).Options(true)))
	own := upstreamkeepalive.OptionNames()
	forms := []struct {
		head    string
		options []string
	}{
		{"proxy_pass ", append(prefixed, own...)},
		{"transport next_upstream ", append(next, "transport")},
		{"transport upstream_keepalive ", own},
		{"upstream ", []string{
			"server", "keepalive", "keepalive_requests", "keepalive_time", "keepalive_timeout", "keepalive_stale",
			"single_counts_down", "state", "sticky", "resolver", "health_check", "health_tracker",
			"queue", "max_unavailable", "panic", "retry_budget", "random_start", "least_conn", "smooth_round_robin",
		}},
		{"lb_policy smooth_round_robin ", []string{"server", "health_tracker"}},
	}
	paths, err := filepath.Glob(filepath.Join("testdata", "*.caddyfiletest"))
	if err != nil {
		t.Fatal(err)
	}
	type key struct{ head, option string }
	right, wrong := map[key]bool{}, map[key]bool{}
	for _, path := range paths {
		g := readGolden(t, path)
		for _, form := range forms {
			blocks(g.input, form.head, func(option string) {
				switch {
				case !g.is("error_") && !g.is("load_error_"):
					right[key{form.head, option}] = true
				case regexp.MustCompile(`\b` + option + `\b`).MatchString(g.want):
					wrong[key{form.head, option}] = true
				}
			})
		}
	}
	for _, form := range forms {
		for _, option := range form.options {
			if k := (key{form.head, option}); !right[k] || !wrong[k] {
				t.Errorf("option %s in a block of %s: a golden file that is right %t, one that is wrong %t", option, form.head, right[k], wrong[k])
			}
		}
	}
}
