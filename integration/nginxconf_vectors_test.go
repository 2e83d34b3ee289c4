// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// variableCase is a case of map.json, geo.json or split_clients.json, recorded
// from nginx 1.31.5.
type variableCase struct {
	Name, Kind string
	Config     struct {
		Source, Mode   string
		Hostnames      bool
		Entries, Parts [][2]string
	}
	Steps    []struct{ Keys []string }
	Expected struct{ Values []string }
}

// block is the case as a block of nginx.conf that makes the variable name.
func (c *variableCase) block(name string) string {
	text := fmt.Sprintf("\t%s %s %s {\n", c.Kind, c.Config.Source, name)
	if c.Config.Hostnames {
		text += "\t\thostnames;\n"
	}
	if c.Config.Mode == "ranges" {
		text += "\t\tranges;\n"
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace
	for _, e := range append(c.Config.Entries, c.Config.Parts...) {
		text += fmt.Sprintf("\t\t\"%s\" \"%s\";\n", quote(e[0]), quote(e[1]))
	}
	return text + "\t}\n"
}

func TestVariablesRecordedFromNginxHaveTheSameValuesOverHTTP(t *testing.T) {
	t.Parallel()
	var cases []variableCase
	for _, file := range []string{"nginxmap/testdata/map.json", "geo/testdata/geo.json", "splitclients/testdata/split_clients.json"} {
		raw, err := os.ReadFile(filepath.Join("..", "internal", "nginxvars", file))
		if err != nil {
			t.Fatal(err)
		}
		var more []variableCase
		if err := json.Unmarshal(raw, &more); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, more...)
	}
	front := testnet.Reserve(t).Addr()
	var blocks, locations strings.Builder
	for i, c := range cases {
		blocks.WriteString(c.block(fmt.Sprint("$v", i)))
		fmt.Fprintf(&locations, "\t\tlocation = /%d { return 200 \"[$v%d]\"; }\n", i, i)
	}
	startAdapted(t, "events {}\nhttp {\n"+blocks.String()+"\tserver {\n\t\tlisten "+front+";\n"+locations.String()+"\t}\n}\n", t.TempDir())
	client, err := testnet.Dial(front)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asked := 0
	for i, c := range cases {
		argument := "k"
		if c.Config.Source == "$arg_a" {
			argument = "a"
		}
		for j, key := range c.Steps[0].Keys {
			asked++
			res, err := client.Do("GET", fmt.Sprintf("/%d?%s=%s", i, argument, key), []string{"Host: x"}, nil)
			if err != nil {
				t.Fatalf("%s: key %q: %v", c.Name, key, err)
			}
			if got, want := string(res.Body), "["+c.Expected.Values[j]+"]"; got != want {
				t.Errorf("%s: key %q = %s, want %s", c.Name, key, got, want)
			}
		}
	}
	if len(cases) != 18 || asked != 3384 {
		t.Errorf("%d cases with %d keys, want 18 with 3384, all of the files", len(cases), asked)
	}
}
