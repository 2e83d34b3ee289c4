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
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// stateful is the configuration of a group with state in a storage of its own.
func stateful(dir string, lines ...string) string {
	return config("\tstorage file_system {\n\t\troot "+dir+"\n\t}\n"+group("app", append(lines, "state")...), "\tproxy_pass app")
}

func (p *proxy) list() string {
	p.t.Helper()
	var out []string
	for _, s := range p.servers("app") {
		out = append(out, fmt.Sprintf("%s=%d", s.ID, s.Weight))
	}
	return strings.Join(out, " ")
}

func TestTheServersAreAsTheyWereAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backends(t, 2)
	text := stateful(dir, b[0].Addr()+" id=a")
	p := start(t, text)
	answer := p.change(201, "POST", "/upstream/groups/app/servers", `{"id":"b","address":"`+b[1].Addr()+`","weight":3}`)
	if !strings.Contains(answer, "in Caddy's storage") {
		t.Errorf("POST answers %s", answer)
	}
	p.change(200, "PATCH", "/upstream/groups/app/servers/a", `{"weight":2}`)
	p.Kill()

	p = start(t, text)
	if got := p.list(); got != "a=2 b=3" {
		t.Errorf("after a kill: %s, want a=2 b=3", got)
	}
	p.reloads = true
	p.MustReload(text, nil)
	if got := p.list(); got != "a=2 b=3" {
		t.Errorf("after a reload: %s, want a=2 b=3", got)
	}
	p.MustReload(stateful(dir, b[0].Addr()+" id=a weight=5"), nil)
	if got := p.list(); got != "a=5" {
		t.Errorf("after another list: %s, want a=5", got)
	}
	if err := p.Reload(strings.Replace(text, "proxy_pass app", "proxy_pass nowhere", 1), nil); err == nil {
		t.Fatal("a wrong configuration was accepted")
	}
	p.Kill()
	p = start(t, stateful(dir, b[0].Addr()+" id=a weight=5"))
	if got := p.list(); got != "a=5" {
		t.Errorf("the list that won is not the stored one: %s, want a=5", got)
	}
}

func TestStateThatCannotBeUsedIsReportedAndIgnored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backends(t, 1)
	text := stateful(dir, b[0].Addr()+" id=a")
	p := start(t, text)
	p.change(200, "PATCH", "/upstream/groups/app/servers/a", `{"weight":2}`)
	p.Kill()
	file := filepath.Join(dir, "upstream", "state", "app.json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(whole, &state); err != nil {
		t.Fatal(err)
	}
	changed := func(name string, value any) string {
		saved := state[name]
		defer func() { state[name] = saved }()
		state[name] = value
		raw, _ := json.Marshal(state)
		return string(raw)
	}
	for what, content := range map[string]string{
		"half of it":       string(whole[:len(whole)/2]),
		"nothing":          "",
		"another version":  changed("version", 99),
		"another group":    changed("group", "other"),
		"a bad server":     changed("servers", []any{map[string]any{"address": b[0].Addr(), "weight": -1}}),
		"no server at all": changed("servers", []any{}),
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, text)
		if got := p.list(); got != "a=1" {
			t.Errorf("%s: %s, want the configured a=1", what, got)
		}
		p.WaitLine(t, 10*time.Second, "a warning about "+what, func(l testnet.Line) bool {
			return l.Msg() == "the stored servers are not used, the configured ones are"
		})
		p.Kill()
	}
}
