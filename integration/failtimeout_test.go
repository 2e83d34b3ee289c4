// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// With the default fail_timeout: requests all through the 10 s, and 20 at once
// after them. Which went where, and when, the log says with its own clock.
func TestADeadServerIsNotTriedFor10SecondsAndThenByOneRequest(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr(), dead), "\tproxy_pass app")
	asked := 0
	ask := func(n int) {
		asked += n
		if got := together(p, n, "/"); got["a"]+got["b"] != n {
			t.Errorf("%d requests: answers %v, want a and b", n, got)
		}
	}
	ask(3) // one of them meets the dead server
	p.WaitLog(t, "server temporarily disabled", map[string]any{"server": dead, "fail_timeout": 10})

	const timeout, last = 10 * time.Second, 2 * time.Second
	var others, tries []time.Time
	late := 0 // requests to others in the last part of a fail_timeout
	for window := 1; window <= 3 && late == 0; window++ {
		began := time.Now()
		testnet.Eventually(t, time.Minute, "the end of fail_timeout", func() bool {
			if since := time.Since(began); since < timeout-last/4 {
				ask(1)
			} else if since > timeout+20*time.Millisecond {
				return true
			}
			return false
		})
		ask(20)
		others, tries = picksOf(p, "app", dead, asked)
		late = 0
		for _, at := range others {
			if d := tries[window-1].Add(timeout).Sub(at); d > 0 && d < last {
				late++
			}
		}
		if len(tries) != window+1 {
			break
		}
	}
	if late == 0 {
		t.Errorf("nothing was asked in the last %v of fail_timeout", last)
	}
	if len(tries) < 2 {
		t.Fatalf("the dead server was tried at %v only, want a probe after %v", tries, timeout)
	}
	// A line is written after its pick, and before the try fails.
	for i, at := range tries[1:] {
		if d := at.Sub(tries[i]); d < timeout-10*time.Millisecond {
			t.Errorf("the dead server was tried again after %v, want more than %v", d, timeout)
		}
	}
	after := 0
	for _, at := range others {
		if at.After(tries[len(tries)-2].Add(timeout)) {
			after++
		}
	}
	if after < 20 {
		t.Errorf("after fail_timeout others were picked %d times, want for all 20 requests", after)
	}
}

// picksOf waits until the picks of so many requests to a group are in the log: one
// each, and one more for each that met the dead server first. It returns the
// times of the picks of others and of the dead server.
func picksOf(p *proxy, group, dead string, requests int) (others, tries []time.Time) {
	p.t.Helper()
	testnet.Eventually(p.t, 30*time.Second, "all picks in the log", func() bool {
		others, tries = nil, nil
		for _, l := range p.logs("peer selected", group, requests) {
			ts, _ := l.Fields["ts"].(float64)
			if at := time.UnixMicro(int64(ts * 1e6)); l.Fields["peer"] == dead {
				tries = append(tries, at)
			} else {
				others = append(others, at)
			}
		}
		return len(others) == requests
	})
	return others, tries
}

func TestAServerIsProbedByOneRequestForWhichNoOtherWaits(t *testing.T) {
	t.Parallel()
	b := backends(t, 3)
	b[2].Stop()
	const timeout = 3 * time.Second
	p := serve(t, group("app", b[0].Addr(), b[1].Addr(), b[2].Addr()+" fail_timeout=3s"), "\tproxy_pass app")
	if got, want := p.bodies(6, "/"), "a b a b a b"; got != want {
		t.Fatalf("answers %s, want %s", got, want)
	}
	third := func() server { return p.servers("app")[2] }
	down := *third().State.DownSince
	hold := make(chan struct{})
	b[2].SetAnswer(testnet.Answer{Body: "c", Hold: hold})
	b[2].Restart()
	testnet.Eventually(t, 30*time.Second, "the end of fail_timeout", func() bool {
		return time.Since(down) > timeout+20*time.Millisecond
	})
	b[0].Forget()
	b[1].Forget()
	result := make(chan map[string]int)
	go func() { result <- together(p, 20, "/") }()
	// On a machine so slow that another fail_timeout ends meanwhile there is
	// another probe.
	probes := 0
	testnet.Eventually(t, 30*time.Second, "answers to all others while the probe is open", func() bool {
		probes = p.conns()
		return probes > 0 && third().State.Conns == probes && len(b[0].Requests())+len(b[1].Requests()) == 20-probes
	})
	if most := 1 + int((time.Since(down)-timeout)/timeout); probes > most {
		t.Errorf("%d requests probe the server, want %d", probes, most)
	}
	close(hold)
	if got := <-result; got["c"] != probes || got["a"]+got["b"] != 20-probes {
		t.Errorf("20 at once: answers %v, want %d of c and the others of a and b", got, probes)
	}
	l := p.WaitLog(t, "server recovered", map[string]any{"group": "app", "server": b[2].Addr()})
	if downFor, _ := l.Fields["down_for"].(float64); l.Fields["level"] != "info" || downFor < timeout.Seconds() {
		t.Errorf("recovery %s", l.Text)
	}
	if got := p.bodies(9, "/"); strings.Count(got, "c") != 3 {
		t.Errorf("recovered: answers %s, want c three times", got)
	}
}

// together sends n requests at once, each on a connection of its own, and
// counts the bodies of the answers; one that is no 200 counts as its status.
func together(p *proxy, n int, target string) map[string]int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[string]int{}
	for range n {
		wg.Go(func() {
			key := ""
			c, err := testnet.Dial(p.Addr("front"))
			if err == nil {
				defer c.Close()
				var res testnet.Response
				if res, err = c.Do("GET", target, nil, nil); err == nil {
					if key = res.Text(); res.Status != 200 {
						key = fmt.Sprint(res.Status)
					}
				}
			}
			if err != nil {
				p.t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			count[key]++
		})
	}
	wg.Wait()
	return count
}
