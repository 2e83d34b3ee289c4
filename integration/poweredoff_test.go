// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

const (
	blackConnect = 500 * time.Millisecond // connect_timeout
	blackFail    = 2 * time.Second        // fail_timeout, of which a run lasts at least three
	blackHedge   = 100 * time.Millisecond
	blackMargin  = 50 * time.Millisecond
)

// asked is one way to ask the proxy for something.
type asked func() (from string, err error)

// series asks n times, at least pause apart, and returns how long each took and
// the slowest time of control, which is asked twice after each.
func series(ask, control asked) (times []time.Duration, slowest time.Duration, err error) {
	const n, pause = 200, 3 * blackFail / 195
	begun := time.Now()
	for i := range n {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * pause))) // the pace, not a wait
		t0 := time.Now()
		if _, err := ask(); err != nil {
			return nil, 0, fmt.Errorf("request %d: %w", i, err)
		}
		times = append(times, time.Since(t0))
		for range 2 {
			t0 := time.Now()
			if _, err := control(); err != nil {
				return nil, 0, fmt.Errorf("control of request %d: %w", i, err)
			}
			slowest = max(slowest, time.Since(t0))
		}
	}
	return times, slowest, nil
}

// overHTTP asks for a path of the front.
func (p *proxy) overHTTP(path string) asked {
	return func() (string, error) {
		c, err := testnet.Dial(p.Addr("front"))
		if err != nil {
			return "", err
		}
		defer c.Close()
		res, err := c.Do("GET", path, nil, nil)
		if err == nil && res.Status != 200 {
			err = fmt.Errorf("status %d", res.Status)
		}
		return res.Text(), err
	}
}

// overStream opens a session to a listener and sends a line.
func (p *proxy) overStream(name string) asked {
	return func() (string, error) {
		c, err := net.DialTimeout("tcp", p.Addr(name), 30*time.Second)
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Write([]byte("x\n")); err != nil {
			return "", err
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		return string(b[:n]), err
	}
}

// poweredOff is a Caddy over two servers that live and one whose packets vanish,
// over HTTP and stream, as nginx does it and with the two options against it.
type poweredOff struct {
	*proxy
	host *testnet.Host
}

func newPoweredOff(t *testing.T) *poweredOff {
	t.Helper()
	host := testnet.NewHost(t)
	far := func() (net.Listener, error) { return host.Listen("tcp", ":8080") }
	farLines := func() (net.Listener, error) { return host.Listen("tcp", ":8081") }
	b := backends(t, 2)
	web := []string{testnet.NewBackendOn(t, far, func(testnet.Request) testnet.Answer { return named("far") }).Addr(), b[0].Addr(), b[1].Addr()}
	tcp := []string{testnet.NewLinesOn(t, farLines, "").Addr(), testnet.NewLines(t, "").Addr(), testnet.NewLines(t, "").Addr()}
	all := func(name string, servers []string, option string) string {
		lines := slices.Clone(servers)
		for i := range lines {
			lines[i] += fmt.Sprintf(" fail_timeout=%s %s", blackFail, option)
		}
		return group(name, lines...)
	}
	connect := fmt.Sprintf("connect_timeout %s\n", blackConnect)
	hedge := connect + fmt.Sprintf("connect_hedge %s\n", blackHedge)
	groups := all("exact", web, "") + all("hedged", web, "probe=tcp") + all("control", web[1:], "") +
		all("exact-tcp", tcp, "") + all("hedged-tcp", tcp, "probe=tcp") + all("control-tcp", tcp[1:], "")
	stream := "\tstream {\n"
	site := ""
	for name, options := range map[string]string{"exact": connect, "hedged": hedge, "control": connect} {
		stream += fmt.Sprintf("server %s {\nproxy_pass %s-tcp {\n%s}\n}\n", front(name), name, options)
		site += fmt.Sprintf("\tproxy_pass /%s %s {\n%s}\n", name, name, options)
	}
	p := &poweredOff{serve(t, groups+stream+"\t}\n", site), host}
	host.Drop(true)
	return p
}

// TestNobodyWaitsForAServerThatIsPoweredOff sends 200 requests one after the other
// over three fail_timeouts, over HTTP and stream at the same time.
//
// How slow the slowest request may be is measured against requests to the two
// servers that live, which are sent in between. A machine that stands still at
// the wrong moment is given further runs, all from the beginning.
func TestNobodyWaitsForAServerThatIsPoweredOff(t *testing.T) {
	const runs = 6
	for run := 1; ; run++ {
		late := poweredOffRun(t, newPoweredOff(t))
		if late == "" {
			return
		}
		if run == runs {
			t.Fatal(late)
		}
		t.Log(late)
	}
}

// poweredOffRun returns what was slower than it may be; everything else must
// hold in every run.
func poweredOffRun(t *testing.T, p *poweredOff) (late string) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards late
	for _, c := range []struct {
		group        string
		exact        bool
		ask, control asked
	}{
		{"exact", true, p.overHTTP("/exact"), p.overHTTP("/control")},
		{"hedged", false, p.overHTTP("/hedged"), p.overHTTP("/control")},
		{"exact-tcp", true, p.overStream("exact"), p.overStream("control")},
		{"hedged-tcp", false, p.overStream("hedged"), p.overStream("control")},
	} {
		wg.Go(func() {
			times, control, err := series(c.ask, c.control)
			if err != nil {
				t.Errorf("%s: %v", c.group, err)
				return
			}
			slow := 0
			for _, d := range times {
				if d >= blackConnect {
					slow++
				}
			}
			slowest := slices.Max(times)
			t.Logf("%s: slowest %v, %d of %d as long as connect_timeout; slowest of the living %v", c.group, slowest, slow, len(times), control)
			switch limit := control + blackHedge + blackMargin; {
			case c.exact && slow < 2:
				t.Errorf("%s: %d requests waited for the dead server, want several", c.group, slow)
			case !c.exact && slowest > limit:
				mu.Lock()
				late += fmt.Sprintf("%s: a request took %v, want at most %v. ", c.group, slowest, limit)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, group := range []string{"hedged", "hedged-tcp"} {
		if s := p.servers(group)[0].State; s.Picks != 1 {
			t.Errorf("%s: %d requests met the dead server, want the first only", group, s.Picks)
		}
		testnet.Eventually(t, 60*time.Second, group+": a probe has failed", func() bool {
			return p.servers(group)[0].State.Failures >= 2
		})
	}
	p.host.Drop(false)
	for group, ask := range map[string]asked{"hedged": p.overHTTP("/hedged"), "hedged-tcp": p.overStream("hedged")} {
		testnet.Eventually(t, 60*time.Second, group+": the server is used again", func() bool {
			from, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			return from == "far" || strings.HasPrefix(from, "8081 ")
		})
	}
	p.waitConns(0)
	return late
}
