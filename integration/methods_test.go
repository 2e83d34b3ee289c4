// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestHashBindsKeysAsNginxDoes asks with the keys 1 to 20.
func TestHashBindsKeysAsNginxDoes(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, group("app", "hash {query.k}", b[0].Addr(), b[1].Addr(), b[2].Addr())+
		group("ring", "hash {http.request.uri.query.k} consistent balance_factor=1.25", b[0].Addr(), b[1].Addr(), b[2].Addr()),
		fmt.Sprintf(`
	proxy_pass /group app
	proxy_pass /ring ring
	reverse_proxy /static %s %s %s {
		lb_policy key_hash {query.k}
	}`, b[0].Addr(), b[1].Addr(), b[2].Addr()))
	for _, path := range []string{"/group", "/static"} {
		got := ""
		for i := range 20 {
			got += p.get(fmt.Sprintf("%s?k=%d", path, i+1)).Text()
		}
		if want := strings.ToLower("BCBABAACCACACCBCABBC"); got != want {
			t.Errorf("%s: keys 1 to 20 reach %s, want %s", path, got, want)
		}
	}
	seen := map[string]bool{}
	for i := range 20 {
		target := fmt.Sprintf("/ring?k=%d", i)
		first := p.get(target).Text()
		seen[first] = true
		if second := p.get(target).Text(); second != first {
			t.Errorf("key %d reached %s and then %s", i, first, second)
		}
	}
	if len(seen) < 2 {
		t.Errorf("all keys reached %v", seen)
	}
}

// CASES 9.
func TestIPHashBindsClientsAsNginxDoesBehindATrustedProxy(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, "\tservers {\n\t\ttrusted_proxies static 127.0.0.0/8\n\t}\n"+
		group("app", "ip_hash", b[0].Addr(), b[1].Addr()), fmt.Sprintf(`
	proxy_pass /group app
	reverse_proxy /static %s %s {
		lb_policy subnet_hash
	}`, b[0].Addr(), b[1].Addr()))
	for _, path := range []string{"/group", "/static"} {
		got := ""
		for i := range 10 {
			got += p.get(path, fmt.Sprintf("X-Forwarded-For: 127.0.%d.2", i+1)).Text()
		}
		if want := "bababababa"; got != want {
			t.Errorf("%s: clients reach %s, want %s", path, got, want)
		}
	}
}

func TestLeastTimeAvoidsTheSlowServer(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	// Slow is what takes much longer than this machine makes of nothing at its
	// worst, today.
	alone := serve(t, group("app", b[1].Addr()), "\tproxy_pass app")
	var worst time.Duration
	for range 30 {
		start := time.Now()
		alone.get("/")
		worst = max(worst, time.Since(start))
	}
	slow := named("a")
	slow.Delay = max(200*time.Millisecond, 5*worst)
	b[0].SetAnswer(slow)
	for _, method := range []string{"least_time header", "least_time last_byte inflight", "least_time ewma", "random two least_time=header"} {
		t.Run(method, func(t *testing.T) {
			p := serve(t, group("app", method, b[0].Addr(), b[1].Addr()), "\tproxy_pass app")
			got := p.bodies(20, "/")
			if n := strings.Count(got, "a"); n > 3 {
				t.Errorf("%d of 20 at the slow server: %s", n, got)
			}
		})
	}
}

func TestRandomReachesAllServersButTheOnesThatAreDown(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	p := serve(t, group("app", "random", b[0].Addr(), b[1].Addr(), b[2].Addr()+" down")+
		group("two", "random two", b[0].Addr(), b[1].Addr(), b[2].Addr()+" down"),
		"\tproxy_pass /one app\n\tproxy_pass /two two")
	for _, path := range []string{"/one", "/two"} {
		got := p.bodies(60, path)
		if strings.Count(got, "a") < 10 || strings.Count(got, "b") < 10 || strings.Contains(got, "c") {
			t.Errorf("%s: %s, want a and b", path, got)
		}
	}
}
