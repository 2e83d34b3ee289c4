// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(servers ...string) *client {
	return &client{servers: servers, ipv6: true, timeout: 9 * time.Second}
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestLookupAsksForBothKindsAndFollowsAliases(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("both.test", "60 A 10.0.0.1", "30 A 10.0.0.2", "90 AAAA 2001:db8::1")
	d.Set("one.test", "45 A 10.0.0.1")
	d.Set("six.test", "40 AAAA 2001:db8::1")
	d.Set("zero.test", "0 A 10.0.0.1")
	d.Set("alias.test", "7 CNAME middle.test.")
	d.Set("middle.test", "50 CNAME both.test.")
	d.Set("dangling.test", "7 CNAME nowhere.test.")
	d.Set("loop.test", "7 CNAME pool.test.")
	d.Set("pool.test", "7 CNAME loop.test.")
	d.Set("empty.test")
	tests := []struct {
		name  string
		want  []netip.Addr
		valid time.Duration
	}{
		{"both.test", addrs("10.0.0.1", "10.0.0.2", "2001:db8::1"), 30 * time.Second},
		{"BOTH.test.", addrs("10.0.0.1", "10.0.0.2", "2001:db8::1"), 30 * time.Second},
		{"one.test", addrs("10.0.0.1"), 45 * time.Second},
		{"six.test", addrs("2001:db8::1"), 40 * time.Second},
		{"zero.test", addrs("10.0.0.1"), 0},
		{"alias.test", addrs("10.0.0.1", "10.0.0.2", "2001:db8::1"), 7 * time.Second},
		{"dangling.test", nil, negativeTTL},
		{"loop.test", nil, negativeTTL},
		{"empty.test", nil, negativeTTL},
		{"unknown.test", nil, negativeTTL},
	}
	for _, tt := range tests {
		got, err := newClient(d.Addr()).lookup(t.Context(), tt.name)
		if err != nil || !slices.Equal(got.addrs, tt.want) || got.valid != tt.valid {
			t.Errorf("lookup(%s) = %v for %v, %v, want %v for %v", tt.name, got.addrs, got.valid, err, tt.want, tt.valid)
		}
	}
}

func TestLookupWithoutIPv6AsksForAddressesOfIPv4Only(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("both.test", "60 A 10.0.0.1", "60 AAAA 2001:db8::1")
	c := newClient(d.Addr())
	c.ipv6 = false
	got, err := c.lookup(t.Context(), "both.test")
	if err != nil || !slices.Equal(got.addrs, addrs("10.0.0.1")) || d.Asked("both.test") != 1 {
		t.Errorf("lookup = %v, %v after %d questions, want 10.0.0.1 after one", got.addrs, err, d.Asked("both.test"))
	}
}

func TestAHundredAddressesComeOverTCP(t *testing.T) {
	d := testnet.NewDNS(t)
	var records []string
	for i := range 100 {
		records = append(records, fmt.Sprintf("60 A 10.0.1.%d", i))
	}
	d.Set("many.test", records...)
	got, err := newClient(d.Addr()).lookup(t.Context(), "many.test")
	if err != nil || len(got.addrs) != 100 || d.OverTCP() != 1 {
		t.Errorf("lookup = %d addresses, %v, %d questions over TCP; want 100, 1", len(got.addrs), err, d.OverTCP())
	}
}

func TestACutAnswerIsAskedForOverTCP(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("a.test", "60 A 10.0.0.1")
	d.Cut(true)
	got, err := newClient(d.Addr()).lookup(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.addrs, addrs("10.0.0.1")) {
		t.Errorf("lookup = %v, %v, want 10.0.0.1", got.addrs, err)
	}
}

func TestAServerWithoutEDNSIsAskedAgainWithoutIt(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("a.test", "60 A 10.0.0.1")
	d.RefuseEDNS(true)
	got, err := newClient(d.Addr()).lookup(t.Context(), "a.test")
	if err != nil || !slices.Equal(got.addrs, addrs("10.0.0.1")) {
		t.Errorf("lookup = %v, %v, want 10.0.0.1", got.addrs, err)
	}
}

func TestFailuresAreErrorsThatSayWhoFailed(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("a.test", "60 A 10.0.0.1")
	silent := testnet.NewDNS(t)
	silent.Silence(true)
	closed := freePort(t)
	for _, tt := range []struct {
		server, rcode, want string
	}{
		{d.Addr(), "SERVFAIL", "SERVFAIL"},
		{d.Addr(), "REFUSED", "REFUSED"},
		{silent.Addr(), "", "timed out"},
		{closed, "", "refused"},
	} {
		if tt.rcode != "" {
			d.Fail("a.test", tt.rcode)
		}
		c := newClient(tt.server)
		if tt.want == "timed out" {
			c.timeout = 500 * time.Millisecond
		}
		_, err := c.lookup(t.Context(), "a.test")
		if err == nil || !errors.Is(err, errNoAnswer) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.server) {
			t.Errorf("lookup: error %v, want one with %q and %s", err, tt.want, tt.server)
		}
	}
}

// One kind of address that fails is no answer: half a list would take servers out.
func TestAFailureOfOneKindIsAFailureOfBoth(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("a.test", "60 A 10.0.0.1")
	d.FailKind("a.test", "AAAA", "SERVFAIL")
	if got, err := newClient(d.Addr()).lookup(t.Context(), "a.test"); err == nil {
		t.Errorf("lookup = %v, want an error", got.addrs)
	}
}

func TestTheNextServerIsAskedWhenOneFails(t *testing.T) {
	good, bad, silent := testnet.NewDNS(t), testnet.NewDNS(t), testnet.NewDNS(t)
	good.Set("a.test", "60 A 10.0.0.1")
	bad.Fail("a.test", "SERVFAIL")
	silent.Silence(true)
	c := newClient(bad.Addr(), silent.Addr(), good.Addr(), freePort(t))
	c.timeout = 6 * time.Second // of which the one that is silent gets its share
	for range 4 {               // whoever is the first
		got, err := c.lookup(t.Context(), "a.test")
		if err != nil || !slices.Equal(got.addrs, addrs("10.0.0.1")) {
			t.Errorf("lookup = %v, %v, want 10.0.0.1", got.addrs, err)
		}
	}
}

func TestALookupEndsWithItsContext(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Hold(true)
	c := newClient(d.Addr())
	c.timeout = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := c.lookup(ctx, "a.test")
		ended <- err
	}()
	testnet.Eventually(t, 30*time.Second, "a question", func() bool { return d.Asked("a.test") > 0 })
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("lookup: no error, want one")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the look-up goes on after its context has ended")
	}
}

func TestServicesHavePriorityWeightAndPort(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("_http._tcp.a.test", "60 SRV 20 7 8002 two.test.", "60 SRV 10 0 8001 one.test.", "60 SRV 10 3 8003 one.test.")
	d.Set("one.test", "60 A 10.0.0.1", "60 A 10.0.0.2")
	d.Set("two.test", "25 A 10.0.0.3")
	d.Set("alias.test", "60 CNAME _http._tcp.a.test.")
	d.Set("none.test", "60 SRV 0 0 0 .")
	d.Set("partly.test", "60 SRV 1 1 80 one.test.", "60 SRV 2 1 80 gone.test.", "60 SRV 3 1 80 broken.test.")
	d.Fail("broken.test", "SERVFAIL")
	d.Set("nothing.test", "60 SRV 2 1 80 gone.test.", "60 SRV 3 1 80 broken.test.")
	d.Set("unknown.test", "60 SRV 3 1 80 broken.test.")
	tests := []struct {
		name, want string
		fails      bool
	}{
		{"_http._tcp.a.test", "one.test:8001 10/0 [10.0.0.1 10.0.0.2], one.test:8003 10/3 [10.0.0.1 10.0.0.2], two.test:8002 20/7 [10.0.0.3] for 25s", false},
		{"alias.test", "one.test:8001 10/0 [10.0.0.1 10.0.0.2], one.test:8003 10/3 [10.0.0.1 10.0.0.2], two.test:8002 20/7 [10.0.0.3] for 25s", false},
		{"none.test", " for 10s", false},
		{"missing.test", " for 10s", false},
		{"partly.test", "one.test:80 1/1 [10.0.0.1 10.0.0.2] for 9s", false},
		{"nothing.test", " for 9s", false},
		{"unknown.test", "", true},
	}
	for _, tt := range tests {
		list, valid, err := newClient(d.Addr()).lookupService(t.Context(), tt.name)
		if tt.fails {
			if err == nil {
				t.Errorf("lookupService(%s) = %v, want an error", tt.name, list)
			}
			continue
		}
		if got := targetsText(list) + " for " + valid.String(); err != nil || got != tt.want {
			t.Errorf("lookupService(%s) = %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

func targetsText(list []target) string {
	var out []string
	for _, x := range list {
		out = append(out, fmt.Sprintf("%s:%d %d/%d %v", x.host, x.port, x.priority, x.weight, x.addrs))
	}
	return strings.Join(out, ", ")
}

func TestWithoutServersTheSystemIsAsked(t *testing.T) {
	d := testnet.NewDNS(t)
	d.Set("a.test", "60 A 10.0.0.1")
	d.Set("_x._tcp.a.test", "60 SRV 1 2 3 a.test.")
	d.Fail("broken.test", "SERVFAIL")
	useDNS(t, d)
	c := newClient()
	if got, err := c.lookup(t.Context(), "localhost"); err != nil || !slices.Contains(got.addrs, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("lookup(localhost) = %v, %v, want what the hosts file says", got.addrs, err)
	}
	if got, err := c.lookup(t.Context(), "a.test"); err != nil || !slices.Equal(got.addrs, addrs("10.0.0.1")) || got.valid != systemTTL {
		t.Errorf("lookup(a.test) = %v for %v, %v, want 10.0.0.1 for %v", got.addrs, got.valid, err, systemTTL)
	}
	if got, err := c.lookup(t.Context(), "unknown.test"); err != nil || len(got.addrs) > 0 {
		t.Errorf("lookup(unknown.test) = %v, %v, want no addresses", got.addrs, err)
	}
	if got, err := c.lookup(t.Context(), "broken.test"); err == nil {
		t.Errorf("lookup(broken.test) = %v, want an error", got.addrs)
	}
	list, _, err := c.lookupService(t.Context(), "_x._tcp.a.test")
	if got := targetsText(list); err != nil || got != "a.test:3 1/2 [10.0.0.1]" {
		t.Errorf("lookupService = %s, %v", got, err)
	}
}

// useDNS makes d the system's resolver for the test.
func useDNS(t *testing.T, d *testnet.DNS) {
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, d.Addr())
	}}
}

func freePort(t *testing.T) string {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}
