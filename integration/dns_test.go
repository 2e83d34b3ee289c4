// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// neighbours are n backends on the same port of 127.0.0.2, 127.0.0.3 and so on;
// each answers with the last number of its address.
func neighbours(t *testing.T, n int) (port string, list []*testnet.Backend) {
	t.Helper()
	for {
		ln, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			testnet.Missing(t, fmt.Sprintf("127.0.0.2: %v", err))
		}
		_, port, _ = net.SplitHostPort(ln.Addr().String())
		first := []net.Listener{ln}
		for i := 1; i < n; i++ {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:%s", 2+i, port))
			if err != nil {
				break
			}
			first = append(first, ln)
		}
		if len(first) < n {
			for _, ln := range first {
				ln.Close()
			}
			continue
		}
		for i, ln := range first {
			listen := func() (net.Listener, error) { return ln, nil }
			name := fmt.Sprint(2 + i)
			list = append(list, testnet.NewBackendOn(t, listen, func(testnet.Request) testnet.Answer {
				return testnet.Answer{Body: name}
			}))
		}
		return port, list
	}
}

// load sends requests from several clients until the end of the test, and
// counts what does not come back with 200.
type load struct {
	mu     sync.Mutex
	total  int
	failed []string
	end    chan struct{}
	wg     sync.WaitGroup
}

func (p *proxy) load(clients int) *load {
	l := &load{end: make(chan struct{})}
	for range clients {
		l.wg.Go(func() {
			browser := testnet.Browser{Addr: p.Addr("front")}
			defer browser.Close()
			for {
				select {
				case <-l.end:
					return
				default:
				}
				res, err := browser.Get("/")
				l.mu.Lock()
				l.total++
				if err != nil || res.Status != 200 {
					l.failed = append(l.failed, fmt.Sprintf("status %d, %v", res.Status, err))
				}
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (l *load) stop(t *testing.T) {
	t.Helper()
	close(l.end)
	l.wg.Wait()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed: %s", len(l.failed), l.total, l.failed[0])
	}
}

// addresses are those of group app that are in use, in their order; backups
// have a b.
func (p *proxy) addresses() string {
	p.t.Helper()
	var out []string
	for _, s := range p.state("app").Servers {
		if s.State.State == "removed" || s.State.State == "unresolved" {
			continue
		}
		host, _, _ := net.SplitHostPort(s.Address)
		text := strings.TrimPrefix(host, "127.0.0.")
		if s.Weight != 1 {
			text += fmt.Sprintf("*%d", s.Weight)
		}
		if s.Backup {
			text += "b"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (p *proxy) waitAddresses(want string) {
	p.t.Helper()
	got := ""
	if !testnet.Poll(20*time.Second, func() bool { got = p.addresses(); return got == want }) {
		p.t.Fatalf("addresses %s, want %s", got, want)
	}
}

func records(kind string, numbers ...int) (out []string) {
	for _, n := range numbers {
		out = append(out, fmt.Sprintf("1 %s 127.0.0.%d", kind, n))
	}
	return out
}

func TestAddressesChangeUnderLoadAndNoRequestFails(t *testing.T) {
	d := testnet.NewDNS(t)
	port, list := neighbours(t, 4)
	d.Set("app.test", records("A", 2, 3)...)
	p := serve(t, group("app", "server app.test:"+port+" resolve", "resolver "+d.Addr()+" valid=300ms timeout=1s"), "proxy_pass app")
	p.waitAddresses("2 3")
	l := p.load(8)
	connections := func(b *testnet.Backend) int {
		most := 0
		for _, r := range b.Requests() {
			most = max(most, r.Conn)
		}
		return most
	}
	list[0].WaitRequests(100)
	before := connections(list[0])
	picks := p.state("app").Servers[0].State.Picks
	d.Set("app.test", records("A", 4, 2)...) // 3 goes, 4 comes, 2 stays
	p.waitAddresses("2 4")
	if got := p.state("app").Servers[0].State.Picks; got < picks {
		t.Errorf("the server that stayed has %d picks after %d", got, picks)
	}
	d.Fail("app.test", "SERVFAIL")
	p.logs("looking up a server failed: it keeps its addresses", "app", 1)
	p.waitAddresses("2 4")
	d.Silence(true)
	asked := d.Asked("app.test")
	testnet.Eventually(t, 20*time.Second, "further questions", func() bool { return d.Asked("app.test") > asked })
	p.waitAddresses("2 4")
	d.Silence(false)
	d.Set("app.test", append(records("A", 2), "1 A 127.0.0.5")...)
	p.waitAddresses("2 5")
	p.logs("looking up a server works again", "app", 1)
	d.Set("app.test", "1 CNAME middle.test.")
	d.Set("middle.test", "1 CNAME end.test.")
	d.Set("end.test", records("A", 5, 2, 3)...)
	p.waitAddresses("2 5 3")
	for _, b := range list {
		b.Forget()
	}
	got := map[string]int{}
	browser := testnet.Browser{Addr: p.Addr("front")}
	l.stop(t)
	for range 30 {
		res, err := browser.Get("/")
		if err != nil {
			t.Fatal(err)
		}
		got[res.Text()]++
	}
	browser.Close()
	if got["2"] != 10 || got["3"] != 10 || got["5"] != 10 {
		t.Errorf("answers %v, want ten of each", got)
	}
	if after := connections(list[0]); after > before+8 {
		t.Errorf("%d connections to the server that stayed, after %d: kept ones were lost", after, before)
	}
	d.Set("app.test") // it exists and has no address
	p.waitAddresses("")
	if res := p.get("/"); res.Status != 502 {
		t.Errorf("status %d without a server, want 502", res.Status)
	}
}

func TestAHundredAddressesOfOneName(t *testing.T) {
	d := testnet.NewDNS(t)
	var numbers []int
	for n := range 100 {
		numbers = append(numbers, 100+n)
	}
	d.Set("app.test", records("A", numbers...)...)
	p := serve(t, group("app", "server app.test:9 resolve", "resolver "+d.Addr()+" valid=300ms"), "proxy_pass app")
	testnet.Eventually(t, 20*time.Second, "100 servers", func() bool { return len(strings.Fields(p.addresses())) == 100 })
}

func TestServicesMoveBetweenPrimaryAndBackup(t *testing.T) {
	d := testnet.NewDNS(t)
	port, _ := neighbours(t, 2)
	d.Set("two.test", "1 A 127.0.0.2")
	d.Set("three.test", "1 A 127.0.0.3")
	d.Set("_http._tcp.app.test", "1 SRV 10 5 "+port+" two.test.", "1 SRV 20 1 "+port+" three.test.")
	p := serve(t, group("app", "server app.test service=http resolve", "resolver "+d.Addr()+" valid=300ms"), "proxy_pass app")
	p.waitAddresses("2*5 3b")
	l := p.load(4)
	d.Set("_http._tcp.app.test", "1 SRV 20 5 "+port+" two.test.", "1 SRV 10 3 "+port+" three.test.")
	p.waitAddresses("3*3 2*5b")
	d.Set("_http._tcp.app.test", "1 SRV 1 1 "+port+" two.test.", "1 SRV 1 3 "+port+" three.test.")
	testnet.Eventually(t, 20*time.Second, "both as primaries", func() bool { a := p.addresses(); return a == "3*3 2" || a == "2 3*3" })
	l.stop(t)
	got := map[string]int{}
	for range 40 {
		got[p.get("/").Text()]++
	}
	if got["2"] != 10 || got["3"] != 30 {
		t.Errorf("answers %v, want 10 and 30", got)
	}
}

func (p *proxy) state(name string) (g upstream.GroupState) {
	p.t.Helper()
	p.AdminJSON("/upstream/groups/"+name, &g)
	return g
}
