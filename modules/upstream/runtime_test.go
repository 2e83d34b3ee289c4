// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// plain is a method and its balancer.
type plain struct{}

func (plain) NewBalancer(*peer.List, peer.Balancer) peer.Balancer { return plain{} }
func (plain) Pick(p *peer.Pass) *peer.Peer                        { return p.RoundRobin() }

// forgiving counts failures and disables nobody.
type forgiving struct{}

func (forgiving) Picked(*peer.Peer, *peer.Health, time.Time)     {}
func (forgiving) Configured(*peer.Peer, *peer.Health, time.Time) {}
func (forgiving) Done(_ *peer.Peer, h *peer.Health, o peer.Outcome, _ time.Time) {
	if o == peer.Failed {
		h.Fails++
	}
}

// testGeneration is a configuration with these servers.
func testGeneration(servers ...string) *generation {
	g := &generation{
		digest: fmt.Sprint(servers),
		config: peer.Config{Method: plain{}, Tracker: forgiving{}},
	}
	var lines []line
	for _, s := range servers {
		lines = append(lines, testLine(s))
	}
	return g.with(lines)
}

func testLine(server string) line {
	address := server + ":80"
	return line{server: &Server{ID: server, Address: address}, peers: []peer.Server{{
		ID: server, Address: address, Name: address, Line: address, Weight: 1, MaxFails: 1, FailTimeout: time.Second,
	}}}
}

// held acquires the state of a group until the end of the test.
func held(t testing.TB, name string) *Runtime {
	t.Helper()
	r, err := acquire(runtimeKey{name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.release(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func members(r *Runtime) []string {
	var out []string
	for _, p := range r.group.Peers() {
		out = append(out, p.ID())
	}
	return out
}

// TestTheLatestStartedConfigurationIsInForce pushes, proposes, drops and
// changes at random and compares with a list of what is started.
func TestTheLatestStartedConfigurationIsInForce(t *testing.T) {
	lists := [][]string{{"a"}, {"a", "b"}, {"b", "c"}, {"c", "a", "d"}}
	rapid.Check(t, func(t *rapid.T) {
		r := &Runtime{key: runtimeKey{name: "model"}, removal: map[int]func(string){}}
		r.logger.Store(zap.NewNop())
		r.group = peer.NewGroup(peer.Options{OnPeer: dress, OnEvent: r.event})

		type config struct {
			gen     *generation
			servers []string
		}
		var stack []*config
		digest, inForce := "", []string(nil)
		enforce := func(c *config) {
			if c.gen.digest == digest {
				c.servers = inForce // changed at run time, and kept
			}
			digest, inForce = c.gen.digest, c.servers
		}
		added := 0
		t.Repeat(map[string]func(*rapid.T){
			"propose": func(t *rapid.T) {
				servers := rapid.SampledFrom(lists).Draw(t, "servers")
				c := &config{testGeneration(servers...), servers}
				if err := r.propose(c.gen, zap.NewNop()); err != nil {
					t.Fatal(err)
				}
				if len(stack) == 0 {
					enforce(c)
				}
			},
			"push": func(t *rapid.T) {
				servers := rapid.SampledFrom(lists).Draw(t, "servers")
				c := &config{testGeneration(servers...), servers}
				if err := r.push(c.gen, zap.NewNop()); err != nil {
					t.Fatal(err)
				}
				stack = append(stack, c)
				enforce(c)
			},
			"drop": func(t *rapid.T) {
				if len(stack) == 0 {
					r.drop(testGeneration("a")) // never pushed
					return
				}
				i := rapid.IntRange(0, len(stack)-1).Draw(t, "which")
				gone := stack[i]
				stack = slices.Delete(stack, i, i+1)
				r.drop(gone.gen)
				r.drop(gone.gen) // Stop, and again by Cleanup
				if n := len(stack); n > 0 {
					enforce(stack[n-1])
				}
			},
			"add": func(t *rapid.T) {
				added++
				id := fmt.Sprintf("x%d", added)
				_, err := r.change("", func(l []line) ([]line, error) { return append(l, testLine(id)), nil })
				if (err == nil) != (inForce != nil) {
					t.Fatalf("change: %v with %v in force", err, inForce)
				}
				if err != nil {
					return
				}
				inForce = append(slices.Clone(inForce), id)
				if n := len(stack); n > 0 {
					stack[n-1].servers = inForce
				}
			},
			"": func(t *rapid.T) {
				if diff := cmp.Diff(inForce, members(r)); diff != "" {
					t.Fatalf("members (-want +got):\n%s", diff)
				}
				if n := len(r.group.Snapshot(time.Now())); len(stack) < 2 && n != len(inForce) {
					t.Fatalf("%d peers are kept, want %d", n, len(inForce))
				}
			},
		})
	})
}

func TestAFailedReloadRestoresServersWithTheirState(t *testing.T) {
	r := held(t, "restore")
	before := testGeneration("a", "b")
	if err := r.push(before, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	var s peer.Session
	s.Begin(r.group, peer.SessionOptions{})
	lease, err := s.Next(time.Now())
	if err != nil || lease.Peer().ID() != "a" {
		t.Fatalf("Next() = %v, %v, want a", lease, err)
	}
	lease.Done(peer.Failed, time.Now())
	want := r.group.Snapshot(time.Now())

	failed := testGeneration("c")
	if err := r.push(failed, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	r.drop(failed)
	ignoreError := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "LastError" }, cmp.Ignore())
	if diff := cmp.Diff(want, r.group.Snapshot(time.Now()), ignoreError); diff != "" {
		t.Errorf("state after a failed reload (-want +got):\n%s", diff)
	}
}

func TestAFailedReloadKeepsWhatWasChangedAtRunTime(t *testing.T) {
	r := held(t, "changed")
	if err := r.push(testGeneration("a"), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.change("", func(l []line) ([]line, error) { return append(l, testLine("b")), nil }); err != nil {
		t.Fatal(err)
	}
	for _, servers := range [][]string{{"c"}, {"a"}} {
		failed := testGeneration(servers...)
		if err := r.push(failed, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		r.drop(failed)
		if got := members(r); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("after a failed reload with %v: %v, want a and b", servers, got)
		}
	}
}

// TestReloadsUnderTrafficLeaveNoLease runs sessions while configurations come
// and go.
func TestReloadsUnderTrafficLeaveNoLease(t *testing.T) {
	r := held(t, "traffic")
	if err := r.push(testGeneration("a", "b"), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				var s peer.Session
				s.Begin(r.group, peer.SessionOptions{})
				first, err := s.Next(time.Now())
				if err != nil {
					continue
				}
				first.Done(peer.Outcome(n%4), time.Now())
				if second, err := s.Next(time.Now()); err == nil {
					second.Done(peer.Success, time.Now())
				}
				r.group.Snapshot(time.Now())
			}
		})
	}
	lists := [][]string{{"a"}, {"a", "b"}, {"b", "c"}, {"c", "a", "d"}}
	current := r.stack[0].as
	for i := range 200 {
		next := testGeneration(lists[i%len(lists)]...)
		if err := r.push(next, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			r.drop(next)
			continue
		}
		r.drop(current)
		current = next
	}
	close(stop)
	wg.Wait()
	for _, s := range r.group.Snapshot(time.Now()) {
		if s.Conns != 0 || s.Removed {
			t.Errorf("server %s: %d conns, removed %v; want 0 and false", s.Server.ID, s.Conns, s.Removed)
		}
	}
}
