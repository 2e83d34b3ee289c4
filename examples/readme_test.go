// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheREADMENamesEveryExampleAndOnlyTestsAndFilesThatExist(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	for _, path := range find(t, ".") {
		if dir := filepath.Dir(path); !strings.Contains(readme, "["+dir+"]("+dir+"/Caddyfile)") {
			t.Errorf("no link to %s", dir)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(readme, -1) {
		if _, err := os.Stat(link[1]); err != nil {
			t.Error(err)
		}
	}
	sources, err := filepath.Glob("../integration/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, path := range append(sources, "outcomes_test.go") {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(source)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(readme, -1)
	for _, name := range named {
		if !strings.Contains(tests.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("there is no test %s", name[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("%d tests are named, want at least 20", len(named))
	}
}
