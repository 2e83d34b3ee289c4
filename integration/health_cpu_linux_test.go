// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// TestTenThousandChecksCostWhatABareLoopCosts compares the CPU time of Caddy
// that checks 10,000 servers every five seconds with that of a loop that makes
// the same 2,000 requests a second with net/http, both at the same time.
func TestTenThousandChecksCostWhatABareLoopCosts(t *testing.T) {
	if raceDetector || testing.Short() {
		t.Skip("takes half a minute, and the race detector changes what it measures")
	}
	const servers, interval = 10_000, 5 * time.Second
	nginx := testnet.StartNginx(t, `
		events { worker_connections 4096; }
		http { access_log off; server { listen 0.0.0.0:{{port "back"}} backlog=4096; location / { return 200 "well"; } } }`, nil)
	_, port, err := net.SplitHostPort(nginx.Addr("back"))
	if err != nil {
		t.Fatal(err)
	}
	address := func(i int) string { return fmt.Sprintf("127.1.%d.%d:%s", i/200, i%200+1, port) }
	var lines []string
	for i := range servers {
		lines = append(lines, address(i))
	}
	lines = append(lines, "health_check interval=5s timeout=4s")
	p := serve(t, group("app", lines...), "proxy_pass app")
	warm := time.Now().Add(2 * interval) // the first round, and the start itself
	client := &http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var done, failed atomic.Int64
	end := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		begun, sent := time.Now(), 0
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			for due := int(time.Since(begun).Seconds() * servers / interval.Seconds()); sent < due; sent++ {
				go func(url string) {
					res, err := client.Get(url)
					if err != nil || res.StatusCode != 200 {
						failed.Add(1)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					done.Add(1)
				}("http://" + address(sent%servers) + "/")
			}
		}
	}()
	defer close(end)
	testnet.Eventually(t, 30*time.Second, "the first round", func() bool { return time.Now().After(warm) })

	caddy, loop, made := cpuTime(t, p.PID()), cpuTime(t, os.Getpid()), done.Load()
	stop := time.Now().Add(4 * interval)
	testnet.Eventually(t, time.Minute, "four rounds", func() bool { return time.Now().After(stop) })
	caddy, loop, made = cpuTime(t, p.PID())-caddy, cpuTime(t, os.Getpid())-loop, done.Load()-made

	ill := 0
	for _, s := range p.state("app").Servers {
		if s.State.State != "up" {
			ill++
		}
	}
	ratio := float64(caddy) / float64(loop)
	t.Logf("checks: %v, loop: %v for %d requests (%d failed), ratio %.2f", caddy, loop, made, failed.Load(), ratio)
	if ill > 0 {
		t.Errorf("%d of %d servers are not up", ill, servers)
	}
	if want := int64(4 * servers); made < want*9/10 {
		t.Skipf("the machine is too busy: the loop made %d of %d requests", made, want)
	}
	if ratio > 1.3 {
		t.Errorf("the checks take %.2f times the CPU time of the loop, want 1.3 at most", ratio)
	}
}
