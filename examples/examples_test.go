// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package examples holds configurations to start from. The test of this folder
// adapts, validates and starts every one of them.
package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/caddy-upstream/caddy-upstream"
	"github.com/caddy-upstream/caddy-upstream/internal/testnet"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// find lists the configurations below dir: <name>/Caddyfile and <name>/caddy.json.
func find(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, name := range []string{"Caddyfile", "caddy.json"} {
		match, err := filepath.Glob(filepath.Join(dir, "*", name))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, match...)
	}
	slices.Sort(found)
	return found
}

func TestEveryExampleAdaptsValidatesAndStarts(t *testing.T) {
	found := find(t, ".")
	if len(found) == 0 {
		t.Fatal("no examples")
	}
	for _, path := range found {
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			run(t, check(t, path))
		})
	}
}

// check runs `caddy adapt` and `caddy validate` on the file as it is, and
// returns what it adapts to.
func check(t *testing.T, path string) []byte {
	t.Helper()
	if _, stderr, err := testnet.Command(t, "validate", "--config", path); err != nil {
		t.Fatalf("validate: %v\n%s", err, stderr)
	}
	if strings.HasSuffix(path, ".json") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	stdout, stderr, err := testnet.Command(t, "adapt", "--config", path)
	if err != nil {
		t.Fatalf("adapt: %v\n%s", err, stderr)
	}
	if strings.Contains(stderr, "not formatted") {
		t.Errorf("%s: run caddy fmt --overwrite", path)
	}
	return []byte(stdout)
}

// run starts the example, with its ports exchanged for free ones, and asks each
// of its HTTP servers for something: any answer but a failure will do.
func run(t *testing.T, adapted []byte) {
	t.Helper()
	listeners := httpListeners(t, adapted)
	config, ports := exchangePorts(untrusted(t, adapted))
	for _, listen := range listeners {
		if _, port, err := net.SplitHostPort(listen); err != nil || ports[port] == "" {
			t.Fatalf("the example listens on %q, want a port of two to five digits: %v", listen, err)
		}
	}
	c := testnet.StartCaddy(t, config, nil)
	for _, listen := range listeners {
		_, port, _ := net.SplitHostPort(listen)
		res := testnet.Get(t, c.URL(ports[port]), "Host: localhost")
		if res.Status >= 500 {
			t.Errorf("%s answers %q", listen, res.Line)
		}
	}
	c.StopGracefully(10 * time.Second)
}

// untrusted is the configuration, indented, with its certificate authority kept
// out of this machine's trust store.
func untrusted(t *testing.T, adapted []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(adapted))
	d.UseNumber()
	var config map[string]any
	if err := d.Decode(&config); err != nil {
		t.Fatal(err)
	}
	at := config
	for _, key := range []string{"apps", "pki", "certificate_authorities", "local"} {
		next, ok := at[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	at["install_trust"] = false
	text, err := json.MarshalIndent(config, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// portNumber is a port as addresses have it. In indented JSON a number that is
// a value has a space before it.
var portNumber = regexp.MustCompile(`:(\d{2,5})\b`)

// exchangePorts turns a configuration into a template in which every port has
// become one that the kernel chooses. names maps a port to its name there.
func exchangePorts(text string) (template string, names map[string]string) {
	names = map[string]string{}
	template = portNumber.ReplaceAllStringFunc(text, func(match string) string {
		port := match[1:]
		if n, err := strconv.Atoi(port); err != nil || n > 65535 {
			return match
		}
		names[port] = "p" + port
		return fmt.Sprintf(`:{{port %q}}`, names[port])
	})
	return template, names
}

// httpListeners are the addresses that the http app listens on.
func httpListeners(t *testing.T, adapted []byte) []string {
	t.Helper()
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]struct {
					Listen []string `json:"listen"`
				} `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(config.Apps.HTTP.Servers)) {
		out = append(out, config.Apps.HTTP.Servers[name].Listen...)
	}
	return out
}

// The check itself, on an example that is right and on ones that are not.
func TestAnExampleIsFoundAndStartedOnOtherPorts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("one/Caddyfile", "http://:8080 {\n\treverse_proxy localhost:9001\n}\n\nhttp://:9001 {\n\trespond a 200\n}\n")
	write("two/caddy.json", `{"apps":{"http":{"grace_period":12345678901,"servers":{"s":{"listen":[":8080"]}}}}}`)
	write("two/README.md", "text")
	found := find(t, dir)
	if len(found) != 2 {
		t.Fatalf("found %v, want two configurations", found)
	}
	for _, path := range found {
		run(t, check(t, path))
	}

	template, names := exchangePorts("server 127.0.0.1:9001 weight=5\nserver udp/:53 timeout=1:2")
	if want := "server 127.0.0.1:{{port \"p9001\"}} weight=5\nserver udp/:{{port \"p53\"}} timeout=1:2"; template != want {
		t.Errorf("template = %q, want %q", template, want)
	}
	if names["9001"] != "p9001" || names["53"] != "p53" {
		t.Errorf("names = %v", names)
	}
}
