// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// systemResolver makes a name server of the test the system's resolver.
func systemResolver(t *testing.T) *testnet.DNS {
	d := testnet.NewDNS(t)
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, d.Addr())
	}}
	return d
}

// knows is a running configuration that has addresses for a line.
type knows struct {
	mu   sync.Mutex
	line string
	list []string
	kept int
}

func (k *knows) addressesOf(line string) []string {
	if line == k.line {
		return k.list
	}
	return nil
}

func (k *knows) keeps(string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept++
}

func TestNamesAreLookedUpOnceAndEveryAddressIsAServer(t *testing.T) {
	d := systemResolver(t)
	d.Set("a.test", "60 A 10.0.0.1", "60 A 10.0.0.2", "60 AAAA 2001:db8::1")
	lines, err := resolveLines(t.Context(), []*Server{{Address: "a.test:81"}, {Address: "10.0.0.9"}}, unknown{})
	if err != nil {
		t.Fatal(err)
	}
	got := addressesOf(lines[0].peers)
	slices.Sort(got)
	if want := []string{"10.0.0.1:81", "10.0.0.2:81", "[2001:db8::1]:81"}; !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	if got := lines[1].peers[0].Address; got != "10.0.0.9:80" {
		t.Errorf("address %s, want 10.0.0.9:80", got)
	}
}

func TestANameThatDoesNotExistIsAnErrorThatNamesTheLine(t *testing.T) {
	d := systemResolver(t)
	d.Set("a.test", "60 A 10.0.0.1")
	d.Fail("broken.test", "SERVFAIL")
	for _, tt := range []struct{ address, want string }{
		{"missing.test:81", `server missing.test:81: looking up "missing.test": lookup missing.test`},
		{"broken.test:81", `server broken.test:81: looking up "broken.test": lookup broken.test`},
	} {
		_, err := resolveLines(t.Context(), []*Server{{Address: "a.test:81"}, {Address: tt.address}}, unknown{})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error that begins with %s", tt.address, err, tt.want)
		}
	}
}

func TestOnAReloadAnUnreachableResolverKeepsWhatIsRunning(t *testing.T) {
	d := systemResolver(t)
	d.Fail("a.test", "SERVFAIL")
	known := &knows{line: "a.test:81", list: []string{"10.0.0.2:81", "10.0.0.1:81"}}
	lines, err := resolveLines(t.Context(), []*Server{{Address: "a.test:81"}}, known)
	if err != nil || !slices.Equal(addressesOf(lines[0].peers), known.list) || known.kept != 1 {
		t.Errorf("addresses of %v, %v, kept %d times, want %v, once", lines, err, known.kept, known.list)
	}
	// That the name does not exist any more is an answer.
	if lines, err = resolveLines(t.Context(), []*Server{{Address: "missing.test:81"}}, new(knows)); err == nil {
		t.Errorf("addresses of %v, want an error", lines)
	}
}

func TestAResolverThatRotatesItsAnswersDoesNotChangeTheOrder(t *testing.T) {
	d := systemResolver(t)
	d.Set("a.test", "60 A 10.0.0.3", "60 A 10.0.0.1", "60 A 10.0.0.2")
	known := &knows{line: "a.test:81", list: []string{"10.0.0.2:81", "10.0.0.1:81"}}
	lines, err := resolveLines(t.Context(), []*Server{{Address: "a.test:81"}}, known)
	if want := []string{"10.0.0.2:81", "10.0.0.1:81", "10.0.0.3:81"}; err != nil || !slices.Equal(addressesOf(lines[0].peers), want) {
		t.Errorf("addresses of %v, %v, want %v", lines, err, want)
	}
}

func TestManyNamesAreLookedUpAtOnce(t *testing.T) {
	d := systemResolver(t)
	var servers []*Server
	for i := range 20 {
		name := fmt.Sprintf("n%d.test", i)
		d.Set(name, "60 A 10.0.0.1")
		servers = append(servers, &Server{Address: name})
	}
	d.Hold(true)
	done := make(chan error)
	go func() {
		_, err := resolveLines(t.Context(), servers, unknown{})
		done <- err
	}()
	testnet.Eventually(t, 30*time.Second, "a question about every name", func() bool {
		return !slices.ContainsFunc(servers, func(s *Server) bool { return d.Asked(s.Address) == 0 })
	})
	d.Hold(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
