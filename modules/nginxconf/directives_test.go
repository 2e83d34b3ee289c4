// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// places are the kinds of blocks by the parser's bits, with a configuration
// that has one, %s in it.
var places = []struct {
	bit    uint
	kind   context
	around string
}{
	{0x000040000, inMain, "%s http { server { listen 127.0.0.1:1; return 200; } }"},
	{0x000080000, inEvents, "events { %s } http { server { listen 127.0.0.1:1; return 200; } }"},
	{0x002000000, inHTTP, "http { %s server { listen 127.0.0.1:1; return 200; } }"},
	{0x004000000, inServer, "http { server { listen 127.0.0.1:1; %s } }"},
	{0x008000000, inLocation, "http { server { listen 127.0.0.1:1; location / { %s } } }"},
	{0x010000000, inUpstream, "http { upstream u { server 10.0.0.1; %s } server { listen 127.0.0.1:1; return 200; } }"},
	{0x020000000, inIf, "http { server { listen 127.0.0.1:1; if ($arg_a) { %s } } }"},
	{0x040000000, inIf, "http { server { listen 127.0.0.1:1; location / { if ($arg_a) { %s } } } }"},
	{0x000400000, inStream, "stream { %s server { listen 127.0.0.1:1; return x; } }"},
	{0x000800000, inStreamServer, "stream { server { listen 127.0.0.1:1; %s return x; } }"},
	{0x001000000, inStreamUpstream, "stream { upstream u { server 10.0.0.1:1; %s } server { listen 127.0.0.1:1; return x; } }"},
}

// allDirectives calls f with every directive of nginx and nginx Plus in every
// place where it may stand.
func allDirectives(t *testing.T, f func(name string, kind context, around string)) {
	t.Helper()
	text, err := os.ReadFile("testdata/directives.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(text))
	if len(names) < 700 {
		t.Fatalf("%d directives, want all of nginx", len(names))
	}
	for _, name := range names {
		open, _ := crossplane.MatchOssLatest(name)
		plus, _ := crossplane.MatchNginxPlusLatest(name)
		if open == nil && plus == nil {
			t.Errorf("%s is no directive of nginx", name)
		}
		for _, p := range places {
			if slices.ContainsFunc(slices.Concat(open, plus), func(mask uint) bool { return mask&p.bit != 0 }) {
				f(name, p.kind, p.around)
			}
		}
	}
}

func TestEveryDirectiveOfNginxIsTranslatedWarnedOfOrRefusedWithAdvice(t *testing.T) {
	allDirectives(t, func(name string, kind context, around string) {
		line := name + " nonsense nonsense nonsense nonsense nonsense;"
		_, warnings, err := Adapter{}.Adapt(fmt.Appendf(nil, around, "\n"+line+"\n"), nil)
		warned := slices.ContainsFunc(warnings, func(w caddyconfig.Warning) bool { return w.Directive == name && w.Line == 2 })
		switch {
		case err != nil && strings.Contains(err.Error(), "unknown or not translated"):
			t.Errorf("%s in %s: no advice: %v", name, contextNames[kind], err)
		case err != nil && strings.Contains(err.Error(), "nginx.conf:2: "+name+": "), warned:
		case name == "include" && err != nil && strings.HasPrefix(err.Error(), "nginx.conf:2: "):
		case takesAnything[name]:
		default:
			t.Errorf("%s in %s: neither an error nor a warning: %v, %v", name, contextNames[kind], err, warnings)
		}
	})
}

// takesAnything are directives for which five words of nonsense are right.
var takesAnything = map[string]bool{"server_name": true, "index": true, "try_files": true, "log_format": true, "resolver": true, "proxy_ignore_headers": true,
	"grpc_ignore_headers": true, "proxy_ssl_alpn": true, "ssl_alpn": true}

// What the table reads has to be asked for somewhere.
func TestNoDirectiveIsReadAndForgotten(t *testing.T) {
	asked := map[string]bool{}
	files := token.NewFileSet()
	pkgs, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range pkgs {
		if !isSource(f) {
			continue
		}
		file, err := parser.ParseFile(files, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if _, ok := d.(*ast.FuncDecl); ok { // tables do not ask
				ast.Inspect(d, func(n ast.Node) bool {
					if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
						text, _ := strconv.Unquote(s.Value)
						asked[text] = true
					}
					return true
				})
			}
		}
	}
	for name, entries := range table {
		for _, e := range entries {
			_, option, _ := strings.Cut(name, "_")
			if e.read != nil && !asked[name] && !asked[option] {
				t.Errorf("%s is read in %s, and nobody asks for it", name, kinds(e.in))
			}
		}
	}
}

func isSource(f fs.DirEntry) bool {
	return strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") && !strings.HasSuffix(f.Name(), "directives.go")
}

func kinds(in context) string {
	var b bytes.Buffer
	for kind, name := range contextNames {
		if in&kind != 0 {
			b.WriteString(name + " ")
		}
	}
	return b.String()
}
