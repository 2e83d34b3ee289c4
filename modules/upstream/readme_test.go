// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/readme"
)

// known are the names that the parser lists when it is given one that it does
// not know.
func known(t *testing.T, block string) []string {
	t.Helper()
	_, err := parseGroup(caddyfile.NewTestDispenser("upstream app {\n"+block+"\n}"), nil)
	if err == nil {
		t.Fatalf("%s is known", block)
	}
	_, list, _ := strings.Cut(err.Error(), ": expected ")
	list, _, ok := strings.Cut(list, ", at ")
	if !ok {
		t.Fatalf("the error lists nothing: %v", err)
	}
	list = strings.NewReplacer(" or ", ", ", "=", "").Replace(list)
	return strings.Split(list, ", ")
}

func TestTheREADMEHasEveryOptionOfAGroup(t *testing.T) {
	options := known(t, "nonsense")
	if len(options) < 10 {
		t.Fatalf("the parser knows %v only", options)
	}
	readme.Check(t, "Options of a group", options)
}

func TestTheREADMEHasEveryParameterOfAServer(t *testing.T) {
	parameters := known(t, "server 127.0.0.1:80 nonsense=1")
	if len(parameters) < 10 {
		t.Fatalf("the parser knows %v only", parameters)
	}
	readme.Check(t, "Parameters of a server", parameters)
}

func TestTheREADMEHasEveryPlaceholderAndFieldOfTheAccessLog(t *testing.T) {
	names := []string{"name"}
	for _, v := range values {
		names = append(names, v.name)
	}
	want := []string{"{http.upstream.cookie.<name>}", "{http.upstream.header.<name>}"}
	text := readme.Text(t)
	for _, name := range names {
		want = append(want, "{http.upstream."+name+"}")
		if row := "| `{http.upstream." + name + "}` | `upstream_" + name + "` | "; !strings.Contains(text, row) {
			t.Errorf("README.md has no row %s", row)
		}
	}
	got := readme.Column(t, "Placeholders")
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("README.md: placeholders, -want +got:\n%s", diff)
	}
}

// The messages that the package logs, in its sources.
var (
	logged  = regexp.MustCompile(`\.(Debug|Info|Warn|Error)\(\s*"([^"]+)"`)
	checked = regexp.MustCompile(`\.Check\(zapcore\.(\w+)Level, "([^"]+)"`)
)

func TestTheREADMEHasEveryLineOfTheLogAndItsLevel(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	levels := map[string]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(source), "(storedUnused", `("`+storedUnused+`"`)
		for _, m := range append(logged.FindAllStringSubmatch(text, -1), checked.FindAllStringSubmatch(text, -1)...) {
			levels[m[2]] = strings.ToUpper(m[1])
		}
	}
	text := readme.Text(t)
	for msg, level := range levels {
		if row := "| `" + msg + "` | " + level + " |"; !strings.Contains(text, row) {
			t.Errorf("README.md has no row %s", row)
		}
	}
	got := readme.Column(t, "Log")
	want := slices.Sorted(maps.Keys(levels))
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("README.md: lines of the log, -want +got:\n%s", diff)
	}
}
