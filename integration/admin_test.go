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

func TestTheReadOnlyAPIShowsGroupsAndServers(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("beta", b[0].Addr()+" id=a/b", dead+" weight=2 max_fails=3 fail_timeout=30s", b[0].Addr()+" id=é backup down")+
		group("alpha", b[0].Addr()), "\tproxy_pass beta")
	p.get("/")

	var list struct {
		Groups []struct {
			Name    string
			Servers []server
		}
	}
	p.AdminJSON("/upstream/groups", &list)
	if len(list.Groups) != 2 || list.Groups[0].Name != "alpha" || list.Groups[1].Name != "beta" || len(list.Groups[1].Servers) != 3 {
		t.Errorf("groups %+v, want alpha with one server and beta with three", list.Groups)
	}
	var one struct {
		Name    string
		Servers []server
	}
	p.AdminJSON("/upstream/groups/beta", &one)
	if one.Name != "beta" || len(one.Servers) != 3 {
		t.Errorf("group %+v, want beta with three servers", one)
	}
	for id, want := range map[string]string{"a/b": "up", dead: "up", "é": "down"} {
		var s server
		p.AdminJSON("/upstream/groups/beta/servers/"+url.PathEscape(id), &s)
		if s.ID != id || s.State.State != want {
			t.Errorf("server %q: %+v, want state %s", id, s, want)
		}
	}
	var s server
	p.AdminJSON("/upstream/groups/beta/servers/"+url.PathEscape(dead), &s)
	// Weight 2 of 1, 2: the first request went there; weight/max_fails is 0.
	if s.Weight != 2 || s.MaxFails != 3 || s.FailTimeout != "30s" || s.State.Fails != 1 || s.State.EffectiveWeight != 2 ||
		!strings.Contains(s.State.LastError, "refused") {
		t.Errorf("the dead server: %+v", s)
	}
}

func TestTheReadOnlyAPISaysWhatIsNotThereAndWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, group("app", b[0].Addr()), "\tproxy_pass app")
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/upstream/groups/none", 404},
		{"GET", "/upstream/groups/app/servers/none", 404},
		{"GET", "/upstream/groups/app/other", 404},
		{"GET", "/upstream/groups/app/servers/" + b[0].Addr() + "/more", 404},
		{"HEAD", "/upstream/groups", 200},
		{"DELETE", "/upstream/groups/app", 405},
		{"PUT", "/upstream/groups", 405},
		{"GET", "/upstream/groups/app/", 200},
	} {
		status, body, err := p.Admin(c.method, c.path, nil)
		if err != nil || status != c.want {
			t.Errorf("%s %s: status %d, %v, want %d", c.method, c.path, status, err, c.want)
		}
		var answer struct{ Error string }
		if c.want >= 400 && (json.Unmarshal(body, &answer) != nil || answer.Error == "") {
			t.Errorf("%s %s: body %q, want an error in JSON", c.method, c.path, body)
		}
	}
}

func TestTheAPIAnswersWithoutAnyGroup(t *testing.T) {
	t.Parallel()
	p := serve(t, "", "\trespond hello")
	status, body, err := p.Admin("GET", "/upstream/groups", nil)
	if err != nil || status != 200 || strings.TrimSpace(string(body)) != `{"groups":[]}` {
		t.Errorf("status %d, %q, %v; want 200 and an empty list", status, body, err)
	}
}
