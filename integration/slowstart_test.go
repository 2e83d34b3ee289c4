// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// onBothFronts runs test over HTTP and over stream. share is how many of n requests
// or sessions, one after the other, the server called a has answered.
func onBothFronts(t *testing.T, groupOf func(a, b string) string, test func(t *testing.T, p *proxy, a *testnet.Server, share func(n int) int)) {
	t.Parallel()
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		b := backends(t, 2)
		p := serve(t, groupOf(b[0].Addr(), b[1].Addr()), "\tproxy_pass app")
		test(t, p, b[0].Server, func(n int) int { return strings.Count(p.bodies(n, "/"), "a") })
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		e := newLineServers(t, 2)
		p := serveStream(t, groupOf(e[0].Addr(), e[1].Addr()), listeners("app"))
		test(t, p, e[0].Server, func(n int) int { return strings.Count(e.names(p, n, "app"), "a") })
	})
}

// CASES 18: after the ramp each gets its half.
func TestASlowStartEndsInAWholeShare(t *testing.T) {
	onBothFronts(t, func(_, b string) string { return group("app", b) },
		func(t *testing.T, p *proxy, a *testnet.Server, share func(int) int) {
			p.change(201, "POST", "/upstream/groups/app/servers", fmt.Sprintf(`{"address":%q,"slow_start":"2s"}`, a.Addr()))
			began := time.Now()
			before := share(10)
			if d := time.Since(began); d < 500*time.Millisecond && before > 4 {
				t.Errorf("%d of 10 in the first %v of a slow start of 2s", before, d)
			}
			testnet.Eventually(t, 30*time.Second, "the end of the ramp", func() bool {
				return time.Since(began) > 2*time.Second && share(20) == 10
			})
			if got := share(100); got < 45 || got > 55 {
				t.Errorf("after the ramp: %d of 100, want 45 to 55", got)
			}
		})
}

// CASES 18: one that flaps begins anew each time.
func TestASlowStartBeginsAnewAfterEachFailure(t *testing.T) {
	onBothFronts(t, func(a, b string) string { return group("app", a+" slow_start=1h fail_timeout=500ms", b) },
		func(t *testing.T, p *proxy, a *testnet.Server, share func(int) int) {
			for round := 1; round <= 2; round++ {
				a.Stop()
				testnet.Eventually(t, 30*time.Second, "a failure", func() bool {
					share(5)
					return p.servers("app")[0].State.Failures >= round
				})
				a.Restart()
				testnet.Eventually(t, 30*time.Second, "the server's return", func() bool {
					share(1)
					return len(p.Logs("server recovered")) >= round
				})
				if got := share(100); got > 10 {
					t.Errorf("round %d: %d of 100 at the server that has just come back", round, got)
				}
			}
		})
}

// CASES 18: a sole server does not ramp.
func TestASoleServerDoesNotStartSlowly(t *testing.T) {
	onBothFronts(t, func(a, b string) string { return group("app", a+" id=a slow_start=1h", b+" id=b down") },
		func(t *testing.T, p *proxy, _ *testnet.Server, share func(int) int) {
			for _, down := range []string{"true", "false"} {
				p.change(200, "PATCH", "/upstream/groups/app/servers/a", `{"down":`+down+`}`)
			}
			if got := share(20); got != 20 {
				t.Errorf("%d of 20 at the sole server", got)
			}
			p.change(200, "PATCH", "/upstream/groups/app/servers/b", `{"down":false}`)
			if got := share(20); got < 9 || got > 11 {
				t.Errorf("%d of 20 beside another one, want half", got)
			}
		})
}
