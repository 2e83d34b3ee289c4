// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// change makes a request of the admin API that has to be answered with want.
func (p *proxy) change(want int, method, path, body string, header ...string) string {
	p.t.Helper()
	if body != "" {
		header = append(header, "Content-Type", "application/json")
	}
	status, answer, err := p.Admin(method, path, []byte(body), header...)
	if err != nil || status != want {
		p.t.Fatalf("%s %s %s: status %d, %v, %s; want %d", method, path, body, status, err, answer, want)
	}
	return string(answer)
}

func TestServersAreChangedWithoutAReload(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, group("app", b[0].Addr()), "\tproxy_pass app")
	const servers = "/upstream/groups/app/servers"
	answer := p.change(201, "POST", servers, `{"id":"x/../é //y","address":"`+b[1].Addr()+`","weight":2}`)
	if !strings.Contains(answer, `"lasts":"until the configuration of this group changes, or Caddy stops"`) {
		t.Errorf("POST answers %s", answer)
	}
	if got := p.bodies(6, "/"); strings.Count(got, "a") != 2 || strings.Count(got, "b") != 4 {
		t.Errorf("after POST: answers %s, want a third from a", got)
	}
	path := servers + "/" + url.PathEscape("x/../é //y")
	p.change(200, "PATCH", path, `{"drain":true}`)
	if got := p.bodies(3, "/"); got != "a a a" {
		t.Errorf("drained: answers %s, want a only", got)
	}
	p.change(200, "PATCH", path, `{"drain":null,"weight":null}`)
	if got := p.bodies(4, "/"); strings.Count(got, "b") != 2 {
		t.Errorf("enabled: answers %s, want half from b", got)
	}
	p.change(200, "DELETE", path, "")
	p.change(404, "DELETE", path, "")
	if got := p.bodies(3, "/"); got != "a a a" {
		t.Errorf("removed: answers %s, want a only", got)
	}
	p.change(204, "POST", "/upstream/groups/app/reset", "")
	if n := p.servers("app")[0].State.Picks; n != 0 {
		t.Errorf("after reset: %d picks", n)
	}
}

func TestChangesLastUntilTheGroupsConfigurationChanges(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	g := group("app", b[0].Addr())
	p := reloadable(t, g, pass(0))
	add := func() {
		p.change(201, "POST", "/upstream/groups/app/servers", `{"id":"b","address":"`+b[1].Addr()+`"}`)
	}
	add()
	p.bodies(4, "/")
	p.MustReload(config(g, pass(1)), nil) // the group is as it was
	if s := p.servers("app"); len(s) != 2 || s[1].ID != "b" || s[1].State.Picks != 2 {
		t.Errorf("after a reload that leaves the group alone: %+v, want b with its state", s)
	}
	p.MustReload(config(group("app", b[0].Addr()+" weight=2"), pass(2)), nil)
	if s := p.servers("app"); len(s) != 1 || s[0].Weight != 2 || s[0].State.Picks != 2 {
		t.Errorf("after a reload that changes the group: %+v, want a with its state, and no b", s)
	}
}

func TestCaddysOwnConfigAPIChangesServersAndKeepsTheirState(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	dead := testnet.RefusedAddr(t)
	p := reloadable(t, group("app", b[0].Addr(), dead+" fail_timeout=60s"), pass(0))
	p.bodies(2, "/")
	before := p.servers("app")
	if before[1].State.State != "unhealthy" {
		t.Fatalf("the dead server: %+v", before[1])
	}
	same := func(what string, n int) {
		t.Helper()
		after := p.servers("app")
		if len(after) != n || after[1].State.DownSince == nil || !after[1].State.DownSince.Equal(*before[1].State.DownSince) ||
			after[0].State.Picks != before[0].State.Picks {
			t.Errorf("%s: %+v, want %d servers with the state from before: %+v", what, after, n, before)
		}
	}
	const servers = "/config/apps/upstream/groups/app/servers"
	p.change(200, "POST", servers, `{"address":"`+b[1].Addr()+`","@id":"third","id":"c"}`)
	same("POST", 3)
	p.change(200, "PATCH", "/id/third/", `{"address":"`+b[1].Addr()+`","@id":"third","id":"c","weight":7}`)
	same("PATCH by @id", 3)
	if s := p.servers("app")[2]; s.Weight != 7 || s.ID != "c" {
		t.Errorf("the changed server: %+v", s)
	}
	p.change(200, "POST", "/id/third/drain", `true`)
	same("POST of one field by @id", 3)
	if s := p.servers("app")[2]; s.State.State != "draining" {
		t.Errorf("the drained server: %+v", s)
	}
	p.change(200, "DELETE", "/id/third", "")
	same("DELETE by @id", 2)
	p.change(500, "POST", servers, `{"address":"`+b[1].Addr()+`","weight":-1}`) // Caddy's own status for it
	same("a refused POST", 2)
}

func TestOtherOriginsAreRefused(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, "\tadmin 127.0.0.1:{{port \"admin\"}}\n"+group("app", b[0].Addr()), "\tproxy_pass app")
	path := p.URL("admin") + "/upstream/groups/app/servers/" + b[0].Addr()
	for _, c := range []struct {
		header string
		want   int
	}{
		{"Origin: http://evil.test", 403}, {"Host: evil.test", 403}, {"Origin: null", 400},
		{"Origin: " + p.URL("admin"), 200}, {"X-Nothing: at all", 200},
	} {
		header := []string{"Content-Type: application/json", c.header}
		res := testnet.Do(t, "PATCH", path, header, []byte(`{"weight":2}`))
		if res.Status != c.want {
			t.Errorf("%s: status %d %s, want %d", c.header, res.Status, res.Text(), c.want)
		}
		var s server
		if err := json.Unmarshal(testnet.Get(t, path).Body, &s); err != nil || (s.Weight == 2) != (c.want == 200) {
			t.Errorf("%s: weight %d, %v after status %d", c.header, s.Weight, err, c.want)
		}
		testnet.Do(t, "PATCH", path, header[:1], []byte(`{"weight":1}`))
	}
	var answer struct{ Groups []any }
	res := testnet.Get(t, p.URL("admin")+"/upstream/groups")
	if err := json.Unmarshal(res.Body, &answer); err != nil || len(answer.Groups) != 1 {
		t.Errorf("GET over TCP: %d %s", res.Status, res.Text())
	}
}

func TestAServerWithANameIsChangedAsOne(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	_, port, _ := strings.Cut(b[0].Addr(), ":")
	p := serve(t, group("app", b[0].Addr()+" id=other", "server localhost:"+port+" id=name"), "\tproxy_pass app")
	p.change(200, "PATCH", "/upstream/groups/app/servers/name", `{"drain":true,"weight":3}`)
	var s struct {
		ID     string
		Weight int
		Peers  []server
	}
	p.api("/upstream/groups/app/servers/name", &s)
	if s.ID != "name" || s.Weight != 3 || len(s.Peers) == 0 || s.Peers[0].State.State != "draining" {
		t.Errorf("the server: %+v", s)
	}
	p.change(404, "PATCH", "/upstream/groups/app/servers/"+url.PathEscape(s.Peers[0].ID), `{"drain":false}`)
	p.change(200, "DELETE", "/upstream/groups/app/servers/name", "")
	if n := len(p.servers("app")); n != 1 {
		t.Errorf("%d peers are left, want 1", n)
	}
}
