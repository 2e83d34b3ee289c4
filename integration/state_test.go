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

// weigh raises server a's weight again and again until stop, and returns the last
// one that was answered; from is what it has.
func (p *proxy) weigh(from int, stop <-chan struct{}) (last int) {
	last = from
	for n := from + 1; ; n++ {
		select {
		case <-stop:
			return last
		default:
		}
		status, _, err := p.Admin("PATCH", "/upstream/groups/app/servers/a", fmt.Appendf(nil, `{"weight":%d}`, n), "Content-Type", "application/json")
		if err != nil || status != 200 {
			return last
		}
		last = n
	}
}

func TestAKillInTheMiddleOfChangesLosesNoAnsweredOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backends(t, 1)
	text := stateful(dir, b[0].Addr()+" id=a")
	for round := range 5 {
		p := start(t, text)
		from := p.servers("app")[0].Weight
		last := make(chan int)
		go func() { last <- p.weigh(from, nil) }()
		testnet.Eventually(t, 30*time.Second, "some changes", func() bool { return p.servers("app")[0].Weight > from+5+3*round })
		p.Kill()
		n := <-last
		p = start(t, text)
		// The one that was not answered may be there, too.
		if got := p.list(); got != fmt.Sprintf("a=%d", n) && got != fmt.Sprintf("a=%d", n+1) {
			t.Errorf("after a kill: %s, want a=%d or one more", got, n)
		}
		if lines := p.Logs("the stored servers are not used, the configured ones are"); len(lines) > 0 {
			t.Errorf("what was stored cannot be used: %v", lines)
		}
		p.Kill()
	}
}

func TestCaddysThatShareAStorageFollowEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backends(t, 3)
	text := stateful(dir, b[0].Addr()+" id=a")
	one, two := start(t, text), start(t, text)
	add := func(p *proxy, id string, n int) {
		t.Helper()
		p.change(201, "POST", "/upstream/groups/app/servers", fmt.Sprintf(`{"id":%q,"address":%q}`, id, b[n].Addr()))
	}
	add(one, "b", 1)
	add(two, "c", 2) // at once: what one has stored comes first
	if got := two.list(); got != "a=1 b=1 c=1" {
		t.Errorf("after changes through both: the second has %s, want all", got)
	}
	testnet.Eventually(t, 30*time.Second, "the first to follow", func() bool { return one.list() == "a=1 b=1 c=1" })
	one.logs("the servers are those that another Caddy has stored", "app", 1)

	// A change that is conditional on what another has changed since is refused.
	two.change(200, "PATCH", "/upstream/groups/app/servers/c", `{"weight":7}`)
	one.change(412, "PATCH", "/upstream/groups/app/servers/c", `{"weight":9}`, "If-Match", `"0000000000000000"`)
	if got := one.list(); got != "a=1 b=1 c=7" {
		t.Errorf("a change shows what another has stored: %s, want c=7", got)
	}
	one.change(200, "DELETE", "/upstream/groups/app/servers/b", "")
	testnet.Eventually(t, 30*time.Second, "the second to follow", func() bool { return two.list() == "a=1 c=7" })
	if got := two.bodies(16, "/"); strings.Contains(got, "b") {
		t.Errorf("answers %s, want none from b", got)
	}

	// What is foreign or broken is left alone, reported once, and replaced by the
	// next change.
	file := filepath.Join(dir, "upstream", "state", "app.json")
	if err := os.WriteFile(file, []byte(`{"version":1,"gro`), 0o600); err != nil {
		t.Fatal(err)
	}
	one.logs("the stored servers are not used, the configured ones are", "app", 1)
	if got := one.list(); got != "a=1 c=7" {
		t.Errorf("with half of a file: %s, want the servers as they were", got)
	}
	one.change(200, "PATCH", "/upstream/groups/app/servers/a", `{"weight":2}`)
	testnet.Eventually(t, 30*time.Second, "the second to follow", func() bool { return two.list() == "a=2 c=7" })
}

func TestConcurrentWritersOfOneStorageCorruptNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backends(t, 1)
	text := stateful(dir, b[0].Addr()+" id=a")
	caddys := []*proxy{start(t, text), start(t, text)}
	stop, done := make(chan struct{}), make(chan int)
	for _, p := range caddys {
		go func() { done <- p.weigh(1, stop) }()
	}
	file := filepath.Join(dir, "upstream", "state", "app.json")
	for read, until := 0, time.Now().Add(2*time.Second); read < 100 || time.Now().Before(until); read++ {
		raw, err := os.ReadFile(file)
		var state struct{ Servers []server }
		if err != nil || json.Unmarshal(raw, &state) != nil || len(state.Servers) != 1 {
			t.Fatalf("stored: %v, %q", err, raw)
		}
	}
	close(stop)
	last := []string{fmt.Sprintf("a=%d", <-done), fmt.Sprintf("a=%d", <-done)}
	testnet.Eventually(t, 30*time.Second, "both to agree", func() bool { return caddys[0].list() == caddys[1].list() })
	if got := caddys[0].list(); got != last[0] && got != last[1] {
		t.Errorf("both have %s, want one of the last changes: %v", got, last)
	}
}

func TestAStreamsGroupGetsNoServerWithoutAPort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := backends(t, 1)
	storage := "\tstorage file_system {\n\t\troot " + dir + "\n\t}\n"
	app := group("app", b[0].Addr()+" id=a", "state")
	p := start(t, config(storage+app, "\tproxy_pass app"))
	p.reloads = true
	post := func(want int) string {
		t.Helper()
		return p.change(want, "POST", "/upstream/groups/app/servers", `{"address":"127.0.0.1","id":"b"}`)
	}
	post(201) // HTTP has a default
	withStream := config(storage+app+"\tstream {\n\t\tserver 127.0.0.1:{{port \"stream\"}} {\n\t\t\tproxy_pass app\n\t\t}\n\t}\n", "\tproxy_pass app")
	const why = "server 127.0.0.1 has no port: a group that stream uses needs one on every line"
	if err := p.Reload(withStream, nil); err == nil || !strings.Contains(err.Error(), why+"; it was added at run time: remove it first") {
		t.Errorf("a stream for a group with such a server: %v", err)
	}
	p.Kill()
	p = start(t, withStream) // what is stored is no reason not to start
	p.reloads = true
	if got := p.list(); got != "a=1" {
		t.Errorf("stream uses the group: %s, want the configured a=1", got)
	}
	p.logs("the stored servers are not used, the configured ones are", "app", 1)
	if got := post(409); !strings.Contains(got, why) {
		t.Errorf("POST answers %s", got)
	}
	if got := p.list(); got != "a=1" {
		t.Errorf("after a refused change: %s, want a=1", got)
	}
	p.MustReload(config(storage+app, "\tproxy_pass app"), nil)
	testnet.Eventually(t, 30*time.Second, "the stream's reference to be gone", func() bool {
		status, _, err := p.Admin("POST", "/upstream/groups/app/servers", []byte(`{"address":"127.0.0.1","id":"b"}`), "Content-Type", "application/json")
		return err == nil && status == 201
	})
}
