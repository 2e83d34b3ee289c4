// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package internal tests how the packages of this module depend on each other.
package internal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/caddy-upstream/caddy-upstream"

// layers are the packages of this module, those that others stand on first.
// A package imports packages of the layers before its own only, and those in
// its own folder; packages below internal/ may import each other. A name that
// ends in /... stands for all below it.
var layers = [][]string{
	{"internal/..."},
	{"modules/upstream"},
	{
		"smoothrr", "leastconn", "passivehealth",
		"modules/iphash", "modules/hash", "modules/random", "modules/leasttime",
		"modules/sticky", "modules/activehealth", "modules/resolve",
	},
	{"modules/nextupstream", "upstreamkeepalive", "l4stream/...", "modules/status", "modules/command"},
	{"caddyfile", "modules/nginxconf/nginxhttp"},
	{"modules/nginxconf"},
	{"modules"},
	{"."},
	{"examples/...", "integration/..."},
}

// engine are the packages that import the standard library only.
var engine = []string{"internal/peer"}

// concerns are the packages that keep their algorithm apart from their Caddy
// face: only the files of face import Caddy.
var (
	concerns = []string{
		"smoothrr", "leastconn", "passivehealth",
		"modules/iphash", "modules/hash", "modules/random", "modules/leasttime",
	}
	face = []string{"module.go", "caddyfile.go", "metrics.go"}
)

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath, Dir string
	Standard        bool
	GoFiles         []string
	Imports, Deps   []string
}

// list returns the packages of this module and all they depend on.
func list(t *testing.T) map[string]*pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,Imports,Deps", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	packages := map[string]*pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// ours returns the path of an import path inside this module, "." for its root.
func ours(importPath string) (path string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// layerOf returns the layer of a package of this module, -1 if it has none.
func layerOf(path string) int {
	return slices.IndexFunc(layers, func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			folder, all := strings.CutSuffix(name, "/...")
			return path == folder || all && strings.HasPrefix(path, folder+"/")
		})
	})
}

// folderOf is the folder of a layer's table that path is in.
func folderOf(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// wrong says what is wrong with an import between two packages of this module.
func wrong(from, to string) error {
	a, b := layerOf(from), layerOf(to)
	switch {
	case to == "internal/testnet":
		return fmt.Errorf("%s imports %s: that is for tests only", from, to)
	case a < 0:
		return fmt.Errorf("%s is in no layer: add it to the table", from)
	case b < a, a == b && (a == 0 || from != to && folderOf(from) == folderOf(to) && folderOf(from) != "modules"):
		return nil
	}
	return fmt.Errorf("%s imports %s: this arrow goes back", from, to)
}

func TestImportsGoOneWay(t *testing.T) {
	for importPath, p := range list(t) {
		from, ok := ours(importPath)
		if !ok {
			continue
		}
		if layerOf(from) < 0 {
			t.Errorf("%s is in no layer: add it to the table", from)
		}
		for _, imported := range p.Imports {
			if to, ok := ours(imported); ok {
				if err := wrong(from, to); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestAnArrowThatGoesBackIsFound(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"modules/upstream", "internal/peer", true},
		{"internal/peer", "modules/upstream", false},
		{"smoothrr", "modules/upstream", true},
		{"modules/upstream", "smoothrr", false},
		{"leastconn", "smoothrr", false},
		{"upstreamkeepalive", "modules/nextupstream", false},
		{"modules/nextupstream", "upstreamkeepalive", false},
		{"caddyfile", "smoothrr", true},
		{"modules/upstream", "modules", false},
		{"l4stream/proxy", "l4stream/internal/udp", true},
		{"internal/wrap", "internal/exchange", true},
		{"internal/wrap", "internal/testnet", false},
		{"newcomer", "internal/peer", false},
	} {
		if err := wrong(c.from, c.to); (err == nil) != c.ok {
			t.Errorf("wrong(%s, %s) = %v, want an error: %v", c.from, c.to, err, !c.ok)
		}
	}
}

func TestTheEngineImportsTheStandardLibraryOnly(t *testing.T) {
	packages := list(t)
	for _, path := range engine {
		p := packages[module+"/"+path]
		if p == nil {
			t.Fatalf("there is no package %s", path)
		}
		for _, dep := range p.Deps {
			if d := packages[dep]; d == nil || !d.Standard {
				t.Errorf("%s depends on %s, want the standard library only", path, dep)
			}
		}
	}
}

func TestAlgorithmFilesImportNoCaddy(t *testing.T) {
	packages := list(t)
	for _, path := range concerns {
		p := packages[module+"/"+path]
		if p == nil {
			t.Fatalf("there is no package %s", path)
		}
		for _, name := range p.GoFiles {
			if slices.Contains(face, name) {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				imported, _ := strconv.Unquote(spec.Path.Value)
				if strings.HasPrefix(imported, "github.com/caddyserver/") {
					t.Errorf("%s/%s imports %s: that belongs into %s", path, name, imported, strings.Join(face, " or "))
				}
			}
		}
	}
}
