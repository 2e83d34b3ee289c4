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
	if !testnet.Poll(30*time.Second, func() bool { got = p.addresses(); return got == want }) {
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
	d.Set("app.test", records("A", 4, 2)...) // 3 goes, 4 comes, 2 stays
	p.waitAddresses("2 4")
	d.Fail("app.test", "SERVFAIL")
	p.logs("looking up a server failed: it keeps its addresses", "app", 1)
	p.waitAddresses("2 4")
	d.Silence(true)
	asked := d.Asked("app.test")
	testnet.Eventually(t, 30*time.Second, "further questions", func() bool { return d.Asked("app.test") > asked })
	p.waitAddresses("2 4")
	d.Silence(false)
	d.Set("app.test", append(records("A", 2), "1 A 127.0.0.5")...)
	p.waitAddresses("2 5")
	p.logs("looking up a server works again", "app", 1)
	d.Set("app.test", "1 CNAME middle.test.")
	d.Set("middle.test", "1 CNAME end.test.")
	d.Set("end.test", records("A", 5, 2, 3)...)
	p.waitAddresses("2 5 3")
	l.stop(t)
	// A server that was taken for a new one at any change would have lost those
	// before it.
	if picks, asked := p.state("app").Servers[0].State.Picks, len(list[0].Requests()); picks+10 < uint64(asked) {
		t.Errorf("the server that stayed has %d picks after %d requests", picks, asked)
	}
	for _, b := range list {
		b.Forget()
	}
	got := map[string]int{}
	browser := testnet.Browser{Addr: p.Addr("front")}
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
	for _, none := range []func(){
		func() { d.Set("app.test") }, // it exists and has no address
		func() { d.Fail("app.test", "NXDOMAIN") },
	} {
		d.Set("app.test", records("A", 2)...)
		p.waitAddresses("2")
		none()
		p.waitAddresses("")
		if res := p.get("/"); res.Status != 502 {
			t.Errorf("status %d without a server, want 502", res.Status)
		}
	}
}

// The answer to the first question after a change is in force when the next one
// comes: what is waited for is counted in questions, and not in time.
func TestSharesAreRightAfterTheNextQuestion(t *testing.T) {
	d := testnet.NewDNS(t)
	port, _ := neighbours(t, 4)
	d.Set("app.test", records("A", 2, 3)...)
	p := serve(t, group("app", "server app.test:"+port+" resolve", "resolver "+d.Addr()+" valid=300ms timeout=60s ipv6=off"), "proxy_pass app")
	p.waitAddresses("2 3")
	l := p.load(4)
	for _, c := range []struct {
		answer []int
		want   string
	}{{[]int{4, 2}, "2 4"}, {[]int{5, 4, 3, 2}, "2 4 5 3"}, {[]int{3}, "3"}, {[]int{2, 3}, "3 2"}} {
		asked := d.Asked("app.test")
		d.Set("app.test", records("A", c.answer...)...)
		testnet.Eventually(t, 30*time.Second, "addresses "+c.want, func() bool {
			questions := d.Asked("app.test") - asked
			got := p.addresses()
			if got != c.want && questions >= 3 { // one may have been on its way
				t.Fatalf("addresses %q after %d questions, want %q", got, questions, c.want)
			}
			return got == c.want
		})
		p.evenShares(len(c.answer), 200)
	}
	l.stop(t)
}

// evenShares waits until group app has picked each of its n servers as often as
// the others, n*each times together.
func (p *proxy) evenShares(n, each int) {
	p.t.Helper()
	picks := func() map[string]uint64 {
		out := map[string]uint64{}
		for _, s := range p.state("app").Servers {
			if s.State.State == "up" {
				out[s.Address] = s.State.Picks
			}
		}
		return out
	}
	before := picks()
	var after map[string]uint64
	testnet.Eventually(p.t, 60*time.Second, "requests", func() bool {
		after = picks()
		var sum uint64
		for address, m := range after {
			sum += m - before[address]
		}
		return sum >= uint64(n*each)
	})
	low, high := uint64(1<<62), uint64(0)
	for address, m := range after {
		low, high = min(low, m-before[address]), max(high, m-before[address])
	}
	if len(after) != n || high-low > 3 {
		p.t.Errorf("picks %v after %v, want equal shares of %d", after, before, n)
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
	testnet.Eventually(t, 30*time.Second, "100 servers", func() bool { return len(strings.Fields(p.addresses())) == 100 })
	if d.OverTCP() == 0 {
		t.Error("the answer came in a datagram, want it too large for one")
	}
	// Answers that are cut to nothing say what they say over TCP.
	d.Cut(true)
	d.Set("app.test", records("A", 2, 3)...)
	p.waitAddresses("2 3")
}

func TestAnAddressMovesBetweenPrimaryAndBackup(t *testing.T) {
	d := testnet.NewDNS(t)
	port, list := neighbours(t, 2)
	d.Set("primary.test", records("A", 2)...)
	d.Set("spare.test", records("A", 3)...)
	p := serve(t, group("app", "server primary.test:"+port+" resolve", "server spare.test:"+port+" resolve backup",
		"resolver "+d.Addr()+" valid=300ms"), "proxy_pass app")
	p.waitAddresses("2 3b")
	l := p.load(4)
	list[0].WaitRequests(50)
	if n := len(list[1].Requests()); n > 0 {
		t.Errorf("the backup got %d requests", n)
	}
	d.Set("primary.test", records("A", 3)...)
	d.Set("spare.test", records("A", 2)...)
	p.waitAddresses("3 2b")
	list[1].WaitRequests(50)
	l.stop(t)
	list[0].Forget()
	for range 10 {
		if got := p.get("/").Text(); got != "3" {
			t.Errorf("answer of %s, want that of 3, which is the primary now", got)
		}
	}
	if n := len(list[0].Requests()); n > 0 {
		t.Errorf("the backup got %d requests", n)
	}
}

// A name without resolve is looked up when the configuration is loaded, by the
// system: at the start it must exist, on a reload what is running goes on if the
// resolver does not answer.
func TestANameWithoutResolveKeepsItsAddressesWhenTheResolverIsGone(t *testing.T) {
	d := testnet.NewDNS(t)
	port, _ := neighbours(t, 2)
	d.BeTheSystems(t)
	text := func(n int, more ...string) string {
		return config(group("app", append([]string{"server app.test:" + port}, more...)...), fmt.Sprintf("\theader X-Load %d\n\tproxy_pass app", n))
	}
	_, err := testnet.TryCaddy(t, text(0), nil)
	if err == nil || !strings.Contains(err.Error(), "group app: server app.test:"+port+": looking up ") {
		t.Errorf("the name does not exist: %v, want an error that names the line", err)
	}
	d.Set("app.test", records("A", 2)...)
	p := start(t, text(0))
	p.reloads = true
	if got := p.get("/").Text(); got != "2" {
		t.Fatalf("answer of %s, want 2", got)
	}
	d.Fail("app.test", "SERVFAIL")
	p.MustReload(text(1), nil)
	p.logs("looking up a server failed: it keeps its addresses", "app", 1)
	p.MustReload(text(2, "server 127.0.0.3:"+port+" backup"), nil) // it changes beside
	p.logs("looking up a server failed: it keeps its addresses", "app", 2)
	p.waitAddresses("2 3b")
	if got := p.get("/").Text(); got != "2" {
		t.Errorf("answer of %s while the resolver is gone, want 2", got)
	}
	d.Fail("app.test", "NXDOMAIN")
	if err := p.Reload(text(3), nil); err == nil || !strings.Contains(err.Error(), "server app.test:"+port+": looking up ") {
		t.Errorf("the name is gone: %v, want an error", err)
	}
	if got := p.get("/").Text(); got != "2" {
		t.Errorf("answer of %s after a reload that failed, want 2", got)
	}
	d.Set("app.test", records("A", 3)...)
	p.MustReload(text(4), nil)
	p.waitAddresses("3")
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
	testnet.Eventually(t, 30*time.Second, "both as primaries", func() bool { a := p.addresses(); return a == "3*3 2" || a == "2 3*3" })
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
