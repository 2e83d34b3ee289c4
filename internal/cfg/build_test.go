// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package cfg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// present stands for a module that is in the build.
type present struct{}

func (present) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.balancers.present", New: func() caddy.Module { return new(present) }}
}

func init() { caddy.RegisterModule(present{}) }

func TestAMissingMethodIsNamedWithItsPackage(t *testing.T) {
	o := Options{"server": func(d *caddyfile.Dispenser) error { d.RemainingArgs(); return nil }}
	o.ModulesOf("upstream.balancers", func(*caddyfile.Dispenser) error { return nil })
	for block, want := range map[string]string{
		"present":          "",
		"server a":         "",
		"least_conn":       "module upstream.balancers.least_conn is not in this build, add --with github.com/caddy-upstream/caddy-upstream/leastconn",
		"fewest_conn":      `unknown option "fewest_conn" in upstream app: expected present or server`,
		"present\npresent": "given twice",
	} {
		d := caddyfile.NewTestDispenser("upstream app {\n" + block + "\n}")
		d.Next()
		d.NextArg()
		err := o.Block(d, "upstream app", nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", block, err, want)
		}
	}
}

func TestAMissingGuestIsNamedWithItsPackage(t *testing.T) {
	d := caddyfile.NewTestDispenser("transport upstream_keepalive")
	d.Next()
	_, _, err := Module(d, "transport", "http.reverse_proxy.transport", "transport")
	if want := "add --with github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Module() = %v, want %q", err, want)
	}
}

// TestPackagesNameFoldersThatRegisterTheModule reads the sources: nothing can be
// imported from here.
func TestPackagesNameFoldersThatRegisterTheModule(t *testing.T) {
	for id, pkg := range Packages {
		files, _ := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*.go"))
		found := false
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(src), `"`+string(id)+`"`)
		}
		if !found {
			t.Errorf("no file of %s has the module ID %s", pkg, id)
		}
	}
}
