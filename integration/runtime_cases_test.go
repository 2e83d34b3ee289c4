// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// TestAServerAddedAtRunTimeIsKeptAliveAndARemovedOneIsLeft (CASES 36) looks at the
// connections that the servers see. That of the removed one has to close within a
// second: before that of another group which is kept for just a second and became
// idle before the removal. A machine that stands still so long has five turns.
func TestAServerAddedAtRunTimeIsKeptAliveAndARemovedOneIsLeft(t *testing.T) {
	t.Parallel()
	b := backends(t, 4)
	second := b[3]
	p := serve(t, group("app", b[0].Addr()+" id=a", b[1].Addr()+" id=b", "keepalive 8")+group("second", second.Addr(), "keepalive_timeout 1s"),
		"\tproxy_pass /second second\n\tproxy_pass app")
	const servers = "/upstream/groups/app/servers"
	p.change(201, "POST", servers, fmt.Sprintf(`{"id":"c","address":%q}`, b[2].Addr()))
	p.bodies(12, "/")
	for i, x := range b[:3] {
		if open, accepted := x.Conns(); open != 1 || accepted != 1 {
			t.Errorf("server %c: %d connections are open, %d were made; want one that is kept", 'a'+i, open, accepted)
		}
	}
	closed := func(what string, x *testnet.Backend) {
		t.Helper()
		testnet.Eventually(t, 30*time.Second, "the end of the connection "+what, func() bool {
			open, _ := x.Conns()
			return open == 0
		})
	}
	for try := 1; ; try++ {
		p.bodies(1, "/second")
		p.change(200, "DELETE", servers+"/b", "")
		closed("to the removed server", b[1])
		open, _ := second.Conns()
		closed("that is kept for a second", second)
		if open == 1 {
			break
		}
		if try == 5 {
			t.Error("the removed server's idle connection was open for more than a second")
			break
		}
		p.change(201, "POST", servers, fmt.Sprintf(`{"id":"b","address":%q}`, b[1].Addr()))
		p.bodies(12, "/")
	}
	p.bodies(8, "/")
	for _, i := range []int{0, 2} {
		if open, accepted := b[i].Conns(); open != 1 || accepted != 1 {
			t.Errorf("server %c: %d connections are open, %d were made; want the same one", 'a'+i, open, accepted)
		}
	}
}

// CASES 50.
func TestAWebSocketOutlivesTwentyChanges(t *testing.T) {
	t.Parallel()
	ws, b := newWebSocket(t), backends(t, 2)
	p := serve(t, group("app", ws.Addr()+" id=ws weight=100", b[0].Addr()+" id=a"), "\tproxy_pass app")
	c := openWebSocket(t, p, "/")
	const servers = "/upstream/groups/app/servers"
	for n := range 5 {
		p.change(201, "POST", servers, fmt.Sprintf(`{"id":"x","address":%q}`, b[1].Addr()))
		p.change(200, "PATCH", servers+"/ws", fmt.Sprintf(`{"weight":%d,"drain":%t}`, 1+n, n%2 == 0))
		say(t, c, fmt.Sprint("drained or not ", n))
		p.change(200, "PATCH", servers+"/x", `{"down":true}`)
		p.change(200, "DELETE", servers+"/x", "")
	}
	p.change(200, "DELETE", servers+"/ws", "")
	say(t, c, "removed")
	if s := p.servers("app"); len(s) != 2 || s[1].ID != "ws" || s[1].State.State != "removed" || s[1].State.Conns != 1 {
		t.Errorf("servers %+v, want ws as removed with one in flight", s)
	}
	c.Close()
	p.waitConns(0)
	testnet.Eventually(t, 30*time.Second, "the removed server to be forgotten", func() bool { return len(p.servers("app")) == 1 })
}
