// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// script is a resolver that answers what the test says.
type script struct {
	mu      sync.Mutex // guards what follows
	answers map[string]Answer
	errs    map[string]error
	asked   map[string]int
	hold    bool
}

func newScript() *script {
	return &script{answers: map[string]Answer{}, errs: map[string]error{}, asked: map[string]int{}}
}

func (s *script) Lookup(ctx context.Context, q Query) (Answer, error) {
	s.mu.Lock()
	s.asked[q.name()]++
	hold := s.hold
	s.mu.Unlock()
	if hold {
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[q.name()]
	for i := range a.Servers {
		if q.Service == "" {
			a.Servers[i].Addr = netip.AddrPortFrom(a.Servers[i].Addr.Addr(), q.Port)
		}
	}
	return a, s.errs[q.name()]
}

func (*script) RetryAfter() time.Duration { return 5 * time.Second }

// set gives name its addresses, "10.0.0.1" or "10.0.0.1:80 weight backup host",
// for ten seconds.
func (s *script) set(name string, records ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Answer{Valid: 9 * time.Second}
	for _, text := range records {
		var l Located
		f := strings.Fields(text)
		if len(f) == 1 {
			l.Addr = netip.AddrPortFrom(netip.MustParseAddr(f[0]), 0)
		} else {
			l.Addr = netip.MustParseAddrPort(f[0])
			fmt.Sscan(f[1], &l.Weight)
			l.Backup, l.Host = f[2] == "backup", f[3]
		}
		a.Servers = append(a.Servers, l)
	}
	s.answers[name] = a
	delete(s.errs, name)
}

func (s *script) fail(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs[name] = err
}

func (s *script) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

// resolving is a configuration whose lines resolve: "<id> <address> [service] [backup] [w=N]".
func resolving(t *testing.T, s Resolver, texts ...string) *generation {
	t.Helper()
	g := &generation{
		digest:   fmt.Sprint(texts),
		config:   peer.Config{Method: plain{}, Tracker: forgiving{}},
		resolver: s, resolverKey: "script",
	}
	var lines []line
	for _, text := range texts {
		f := strings.Fields(text)
		server := &Server{ID: f[0], Address: f[1], Resolve: true}
		for _, word := range f[2:] {
			if w, ok := strings.CutPrefix(word, "w="); ok {
				var n int
				fmt.Sscan(w, &n)
				server.Weight = &n
			} else if word == "backup" {
				server.Backup = true
			} else {
				server.Service = word
			}
		}
		peers, err := server.peers(t.Context(), unknown{})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line{server: server, peers: peers})
	}
	return g.with(lines)
}

// now describes the peers of a group: address, weight, b for a backup.
func described(r *Runtime) string {
	var out []string
	for _, s := range r.group.Snapshot(time.Now()) {
		if s.Removed {
			continue
		}
		text := fmt.Sprintf("%s*%d", s.Server.Address, s.Server.Weight)
		if s.Server.Backup {
			text += "b"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// follow runs f in a bubble with a Runtime whose configuration g is started.
func follow(t *testing.T, f func(t *testing.T, r *Runtime, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, held(t, "follow-"+t.Name()), newScript())
	})
}

func (r *Runtime) start(t *testing.T, g *generation) {
	t.Helper()
	if err := r.push(g, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.drop(g) })
	synctest.Wait()
}

func wantPeers(t *testing.T, r *Runtime, want string) {
	t.Helper()
	synctest.Wait()
	if got := described(r); got != want {
		t.Errorf("servers: %s, want %s", got, want)
	}
}

// CASES 52: a new address is used.
func TestAnAnswerReplacesTheAddressesOfItsLine(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("a.test", "10.0.0.1", "10.0.0.2")
		s.set("b.test", "10.0.1.1")
		r.start(t, resolving(t, s, "a a.test:81 w=3", "b b.test:82 backup"))
		wantPeers(t, r, "10.0.0.1:81*3 10.0.0.2:81*3 10.0.1.1:82*1b")

		s.set("a.test", "10.0.0.3", "10.0.0.2", "2001:db8::1")
		time.Sleep(9 * time.Second)
		wantPeers(t, r, "10.0.0.1:81*3 10.0.0.2:81*3 10.0.1.1:82*1b")
		time.Sleep(time.Second) // one after the end of the validity
		wantPeers(t, r, "10.0.0.2:81*3 10.0.0.3:81*3 [2001:db8::1]:81*3 10.0.1.1:82*1b")
	})
}

// CASES 52.
func TestAddressesThatStayKeepTheirState(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("a.test", "10.0.0.1", "10.0.0.2")
		r.start(t, resolving(t, s, "a a.test:80"))
		var session peer.Session
		session.Begin(r.group, peer.SessionOptions{})
		lease, err := session.Next(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		stays := r.group.Peers()[0]
		s.set("a.test", "10.0.0.9", "10.0.0.1")
		time.Sleep(10 * time.Second)
		wantPeers(t, r, "10.0.0.1:80*1 10.0.0.9:80*1")
		if got := r.group.Peers()[0]; got != stays || got.Conns() != 1 {
			t.Errorf("the server that stayed has %d connections and is another: %t; want 1, false", got.Conns(), got != stays)
		}
		lease.Done(peer.Failed, time.Now())
		s.set("a.test", "10.0.0.1", "10.0.0.8")
		time.Sleep(10 * time.Second)
		if got := r.group.Snapshot(time.Now())[0]; r.group.Peers()[0] != stays || got.Fails != 1 {
			t.Errorf("the server that stayed has failed %d times, want once", got.Fails)
		}
	})
}

// CASES 52: a failed look-up keeps the last list.
func TestANameThatDoesNotExistHasNoServersAndAFailureChangesNothing(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("a.test", "10.0.0.1")
		r.start(t, resolving(t, s, "a a.test:80"))
		s.fail("a.test", errors.New("name server 10.9.9.9:53: timed out"))
		time.Sleep(10 * time.Second)
		wantPeers(t, r, "10.0.0.1:80*1")
		asked := s.count("a.test")
		time.Sleep(5*time.Second - time.Millisecond)
		if got := s.count("a.test"); got != asked {
			t.Errorf("asked %d times before the retry, want %d", got, asked)
		}
		s.set("a.test")
		time.Sleep(time.Millisecond)
		wantPeers(t, r, "")
		s.set("a.test", "10.0.0.2")
		time.Sleep(10 * time.Second)
		wantPeers(t, r, "10.0.0.2:80*1")
	})
}

func TestServicesMakeServersAndBackups(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("_http of a.test", "10.0.0.1:8001 5 primary one.test", "10.0.0.2:8002 1 backup two.test", "10.0.0.2:8002 1 backup two.test")
		r.start(t, resolving(t, s, "a a.test _http"))
		wantPeers(t, r, "10.0.0.1:8001*5 10.0.0.2:8002*1b 10.0.0.2:8002*1b")
		if got := r.group.Peers()[0].Server().Line; got != "one.test" {
			t.Errorf("the line of the first server is %q, want the name of the record", got)
		}
		one := r.group.Peers()[0]
		// The priorities change places: one address moves from the primary to the
		// backup servers, another back, and both weights change.
		s.set("_http of a.test", "10.0.0.2:8002 7 primary two.test", "10.0.0.1:8001 2 backup one.test")
		time.Sleep(10 * time.Second)
		wantPeers(t, r, "10.0.0.2:8002*7 10.0.0.1:8001*2b")
		if r.group.Peers()[1] != one {
			t.Error("a server that moved to the backups is another one")
		}
	})
}

func TestAWeightOnTheLineGoesBeforeThatOfTheRecord(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("_http of a.test", "10.0.0.1:8001 5 primary one.test")
		r.start(t, resolving(t, s, "a a.test _http w=2"))
		wantPeers(t, r, "10.0.0.1:8001*2")
	})
}

func TestAReloadTakesKnownAddressesOver(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("a.test", "10.0.0.1")
		s.set("_http of s.test", "10.0.1.1:8001 5 backup x.test")
		first := resolving(t, s, "a a.test:80", "s s.test _http")
		second := resolving(t, s, "n a.test:81 w=4", "s s.test _http w=3") // read before the first answer
		r.start(t, first)
		wantPeers(t, r, "10.0.0.1:80*1 10.0.1.1:8001*5b")
		s.fail("a.test", errors.New("unreachable"))
		s.fail("_http of s.test", errors.New("unreachable"))
		r.start(t, second)
		wantPeers(t, r, "10.0.0.1:81*4 10.0.1.1:8001*3b")
		r.drop(second) // the reload failed after all
		wantPeers(t, r, "10.0.0.1:80*1 10.0.1.1:8001*5b")
	})
}

func TestAnEqualConfigurationIsFollowedWithoutABreak(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("a.test", "10.0.0.1")
		r.start(t, resolving(t, s, "a a.test:80"))
		r.start(t, resolving(t, s, "a a.test:80"))
		wantPeers(t, r, "10.0.0.1:80*1")
		if got := s.count("a.test"); got != 1 {
			t.Errorf("asked %d times, want once", got)
		}
	})
}

func TestWhatIsDroppedIsNotAskedFor(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.hold = true
		g := resolving(t, s, "a a.test:80")
		r.start(t, g)
		r.drop(g) // in the middle of the look-up; the bubble ends when it has
		time.Sleep(time.Minute)
		if got := s.count("a.test"); got != 1 {
			t.Errorf("asked %d times, want once", got)
		}
	})
}

func TestALateAnswerOfAnEndedFollowerIsNotUsed(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("a.test", "10.0.0.1")
		r.start(t, resolving(t, s, "a a.test:80"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		key := (&Server{ID: "a", Address: "a.test:80"}).lineKey()
		if err := r.resolved(ctx, key, []Located{{Addr: netip.MustParseAddrPort("10.6.6.6:80")}}); err != nil {
			t.Error(err)
		}
		wantPeers(t, r, "10.0.0.1:80*1")
	})
}

func TestServersOfALineThatResolvesCanBeChanged(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("_http of a.test", "10.0.0.1:8001 5 primary one.test", "10.0.0.2:8002 1 backup two.test")
		r.start(t, resolving(t, s, "a a.test _http"))
		if _, _, err := r.patch("", "a", map[string]json.RawMessage{"weight": json.RawMessage("9")}, nil); err != nil {
			t.Fatal(err)
		}
		wantPeers(t, r, "10.0.0.1:8001*9 10.0.0.2:8002*9b")
		if _, _, err := r.patch("", "a", map[string]json.RawMessage{"weight": json.RawMessage("null")}, nil); err != nil {
			t.Fatal(err)
		}
		wantPeers(t, r, "10.0.0.1:8001*5 10.0.0.2:8002*1b")
		time.Sleep(10 * time.Second)
		wantPeers(t, r, "10.0.0.1:8001*5 10.0.0.2:8002*1b")
	})
}

func TestAServerAddedWithResolveIsFollowed(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		s.set("a.test", "10.0.0.1")
		s.set("b.test", "10.0.0.2")
		r.start(t, resolving(t, s, "a a.test:80"))
		if _, err := r.add(t.Context(), "", &Server{Address: "b.test:80", Resolve: true}); err != nil {
			t.Fatal(err)
		}
		wantPeers(t, r, "10.0.0.1:80*1 10.0.0.2:80*1")
		if _, err := r.remove("", "b.test:80", nil); err != nil {
			t.Fatal(err)
		}
		wantPeers(t, r, "10.0.0.1:80*1")
		time.Sleep(time.Minute)
		if got := s.count("b.test"); got != 1 {
			t.Errorf("the removed name was asked for %d times, want once", got)
		}
	})
}

func TestAFailureIsLoggedOnceAndSoIsItsEnd(t *testing.T) {
	follow(t, func(t *testing.T, r *Runtime, s *script) {
		core, logs := zapobserver.New(zap.InfoLevel)
		s.fail("a.test", errors.New("name server 10.9.9.9:53: timed out"))
		g := resolving(t, s, "a a.test:80")
		if err := r.push(g, zap.New(core)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.drop(g) })
		time.Sleep(time.Minute)
		s.set("a.test", "10.0.0.1")
		time.Sleep(10 * time.Second)
		s.set("a.test")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var got []string
		for _, e := range logs.All() {
			got = append(got, e.Level.String()+" "+e.Message)
		}
		want := "warn looking up a server failed: it keeps its addresses, info server resolved, " +
			"info looking up a server works again, info server removed, warn the name of a server has no addresses"
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("log: %s, want %s", text, want)
		}
	})
}

func TestLinesThatCannotResolveAreRefused(t *testing.T) {
	for _, tt := range []struct {
		server Server
		want   string
	}{
		{Server{Address: "10.0.0.1:80", Resolve: true}, "expected a host name"},
		{Server{Address: "unix//run/a.sock", Resolve: true}, "expected a host name"},
		{Server{Address: "a.test:80", Resolve: true, Service: "http"}, "a port beside service="},
		{Server{Address: "a.test", Service: "http"}, "service= needs resolve"},
		{Server{Address: "10.0.0.1", Resolve: true, Service: "http"}, "expected a host name"},
	} {
		_, err := tt.server.peers(t.Context(), unknown{})
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.server.Address) {
			t.Errorf("server %+v: %v, want an error with %q", tt.server, err, tt.want)
		}
	}
}

func TestStoredServersThatNothingCanFollowAreNotUsed(t *testing.T) {
	stored := []*Server{{Address: "10.0.0.1:80"}, {Address: "app.test:80", Resolve: true}}
	g := &Group{runtime: held(t, "stored")}
	if lines, err := g.readStored(t.Context(), stored); err == nil || err.Error() != "server app.test:80: resolve: no resolver is in this build" {
		t.Errorf("%d lines, %v, want the error that a build without resolvers gives", len(lines), err)
	}
	if lines, err := g.readStored(t.Context(), stored[:1]); err != nil || len(lines) != 1 {
		t.Errorf("%d lines, %v, want the one that needs no resolver", len(lines), err)
	}
	g.resolver = newScript()
	if lines, err := g.readStored(t.Context(), stored); err != nil || len(lines) != 2 {
		t.Errorf("%d lines, %v, want both", len(lines), err)
	}
}
