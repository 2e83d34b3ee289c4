// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

var errBody = errors.New("the body does not match")

// checked is a group of servers a, b, c... and what happens in it.
func checked(t testing.TB, n int, edit func(*peer.Config)) (g *peer.Group, log *[]string) {
	log = new([]string)
	c := peer.Config{Method: peertest.RoundRobin{}}
	for i := range n {
		c.Servers = append(c.Servers, peer.Server{ID: string(rune('a' + i)), MaxFails: 1, FailTimeout: 10 * time.Second})
	}
	if edit != nil {
		edit(&c)
	}
	g = peertest.Group(t, c, peer.Options{OnEvent: func(e peer.Event) {
		names := map[peer.EventKind]string{peer.ServerDown: "down", peer.ServerUp: "up", peer.ServerUnhealthy: "unhealthy",
			peer.ServerHealthy: "healthy", peer.PanicBegins: "panic", peer.PanicEnds: "calm", peer.ServerGone: "gone"}
		*log = append(*log, strings.TrimSpace(names[e.Kind]+" "+e.Peer.ID()+" "+e.Check))
	}})
	return g, log
}

func member(t testing.TB, g *peer.Group, id string) *peer.Peer {
	t.Helper()
	for _, p := range g.Peers() {
		if p.ID() == id {
			return p
		}
	}
	t.Fatalf("no server %s", id)
	return nil
}

func TestAServerIsOutWhileAnyCheckSaysSo(t *testing.T) {
	g, log := checked(t, 3, nil)
	http := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
	tcp := g.AddCheck(peer.CheckOptions{Name: "tcp"}, t0)
	a := member(t, g, "a")
	http.Fail(a, errBody, t0)
	tcp.Fail(a, errors.New("refused"), t0)
	http.Fail(a, errors.New("status 500"), at(time.Second))
	if got := sequence(g, 4, at(time.Second)); got != "bcbc" {
		t.Errorf("picks %s, want bcbc", got)
	}
	want := []peer.CheckState{{Check: "http", Reason: "status 500", Since: t0}, {Check: "tcp", Reason: "refused", Since: t0}}
	if s := state(t, g, "a"); !slices.Equal(s.Checks, want) || s.Available(t0) {
		t.Errorf("checks %+v, available %t, want %+v, false", s.Checks, s.Available(t0), want)
	}
	http.Pass(a, at(2*time.Second), at(2*time.Second))
	if got := sequence(g, 4, at(2*time.Second)); got != "bcbc" {
		t.Errorf("picks while one check fails: %s, want bcbc", got)
	}
	tcp.Pass(a, at(2*time.Second), at(2*time.Second))
	if got := sequence(g, 6, at(2*time.Second)); strings.Count(got, "a") != 2 {
		t.Errorf("picks after both passed: %s, want a twice", got)
	}
	if got := strings.Join(*log, ", "); got != "unhealthy a http, unhealthy a tcp, healthy a http, healthy a tcp" {
		t.Errorf("events: %s", got)
	}
}

func TestTheOnlyServerCanBeOutByACheck(t *testing.T) {
	g, _ := checked(t, 1, nil)
	c := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
	a := member(t, g, "a")
	c.Fail(a, errBody, t0)
	if got := sequence(g, 1, t0); got != "@" {
		t.Errorf("picked %s, want none", got)
	}
	c.Pass(a, t0, t0)
	if got := sequence(g, 1, t0); got != "a" {
		t.Errorf("picked %s, want a", got)
	}
}

func TestTheLastServerThatIsWellIsAsGoodAsAlone(t *testing.T) {
	for _, countDown := range []bool{false, true} {
		g, _ := checked(t, 3, func(c *peer.Config) { c.SingleCountsDown = countDown })
		c := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
		c.Fail(member(t, g, "a"), errBody, t0)
		c.Fail(member(t, g, "b"), errBody, t0)
		failAll(g, 5, t0)
		want := "c"
		if countDown { // as in nginx: it is one of three
			want = "@"
		}
		if got := sequence(g, 1, t0); got != want {
			t.Errorf("single_counts_down %t: picked %s, want %s", countDown, got, want)
		}
		c.Pass(member(t, g, "a"), t0, t0) // it is not the only one any more
		failAll(g, 5, t0)
		if got := sequence(g, 1, t0); got != "@" {
			t.Errorf("single_counts_down %t: picked %s, want none", countDown, got)
		}
	}
}

func TestAPassEndsATimeOutThatBeganBefore(t *testing.T) {
	g, log := checked(t, 2, nil)
	c := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
	fail(t, g, "a", at(time.Second))
	c.Pass(member(t, g, "a"), at(time.Second), at(2*time.Second)) // asked before the failure was known
	if s := state(t, g, "a"); s.Until.IsZero() {
		t.Fatal("a pass that began before the time out has ended it")
	}
	c.Pass(member(t, g, "a"), at(2*time.Second), at(3*time.Second))
	s := state(t, g, "a")
	if !s.Until.IsZero() || s.Fails != 0 || !s.DownSince.IsZero() {
		t.Errorf("state %+v, want none of the failure", s)
	}
	if got := sequence(g, 2, at(3*time.Second)); !strings.Contains(got, "a") {
		t.Errorf("picks %s, want a among them", got)
	}
	if got := strings.Join(*log, ", "); got != "down a, up a" {
		t.Errorf("events: %s, want down a, up a", got)
	}
}

func TestAServerOutByATimeOutAndACheckComesBackWithTheLatter(t *testing.T) {
	g, _ := checked(t, 2, nil)
	c := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
	fail(t, g, "a", t0)
	c.Fail(member(t, g, "a"), errBody, t0)
	if got := sequence(g, 2, at(time.Minute)); got != "bb" { // the time out is over
		t.Errorf("picks %s, want bb", got)
	}
}

func TestMandatoryKeepsServersOutUntilTheirFirstPass(t *testing.T) {
	g, log := checked(t, 2, nil)
	c := g.AddCheck(peer.CheckOptions{Name: "http", Mandatory: true, Prove: true}, t0)
	if got := sequence(g, 1, t0); got != "@" {
		t.Fatalf("picked %s before any check, want none", got)
	}
	c.Pass(member(t, g, "a"), t0, t0)
	c.Fail(member(t, g, "b"), errBody, t0)
	if got := sequence(g, 2, t0); got != "aa" {
		t.Errorf("picks %s, want aa", got)
	}
	cfg := peer.Config{Method: peertest.RoundRobin{}, Servers: []peer.Server{{ID: "a"}, {ID: "n"}}}
	peertest.Apply(t, g, cfg, t0)
	if got := sequence(g, 2, t0); got != "aa" {
		t.Errorf("picks %s with a new server, want aa", got)
	}
	c.Pass(member(t, g, "n"), t0, t0)
	if got := sequence(g, 2, t0); got != "an" && got != "na" {
		t.Errorf("picks %s, want a and n", got)
	}
	cfg.Servers[1].Down = true
	peertest.Apply(t, g, cfg, t0)
	cfg.Servers[1].Down = false // it returns
	peertest.Apply(t, g, cfg, t0)
	if got := sequence(g, 2, t0); got != "aa" {
		t.Errorf("picks %s with a returning server, want aa", got)
	}
	if got := strings.Join(*log, ", "); got != "unhealthy b http, gone b" {
		t.Errorf("events: %s", got)
	}
}

func TestASuccessorKeepsVerdictsUntilItHasItsOwn(t *testing.T) {
	g, _ := checked(t, 3, nil)
	old := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
	old.Fail(member(t, g, "a"), errBody, t0)
	next := g.AddCheck(peer.CheckOptions{Name: "http", Before: old}, t0)
	if got := sequence(g, 2, t0); got != "bc" {
		t.Errorf("picks %s, want bc", got)
	}
	old.Pass(member(t, g, "a"), t0, t0)         // too late
	old.Fail(member(t, g, "b"), errBody, t0)    // the same
	if got := sequence(g, 2, t0); got != "bc" { // still
		t.Errorf("picks %s after verdicts of an ended check, want bc", got)
	}
	next.Pass(member(t, g, "a"), t0, t0)
	if got := sequence(g, 3, t0); !strings.Contains(got, "a") {
		t.Errorf("picks %s, want a among them", got)
	}
	next.Fail(member(t, g, "a"), errBody, t0)
	next.End(t0)
	if got := sequence(g, 3, t0); !strings.Contains(got, "a") {
		t.Errorf("picks %s after the end of the check, want a among them", got)
	}
}

type aborter func()

func (a aborter) Abort() { a() }

func TestAFailureClosesWhatIsOpenIfTheCheckSaysSo(t *testing.T) {
	g, _ := checked(t, 1, nil)
	closed := ""
	hold := func(name string) *peer.Lease {
		l := peertest.Pick(g, peer.SessionOptions{}, t0)
		l.Hold(aborter(func() { closed += name }), name != "request")
		return l
	}
	request := hold("request")
	a := member(t, g, "a")
	keeps := g.AddCheck(peer.CheckOptions{Name: "keeps"}, t0)
	closes := g.AddCheck(peer.CheckOptions{Name: "closes", Closes: true}, t0)
	open, ended := hold("open"), hold("ended")
	ended.Done(peer.Success, t0)
	keeps.Fail(a, errBody, t0)
	if closed != "" {
		t.Errorf("closed %s, want nothing", closed)
	}
	closes.Fail(a, errBody, t0)
	closes.Fail(a, errBody, t0)
	if closed != "open" {
		t.Errorf("closed %q, want open", closed)
	}
	open.Done(peer.None, t0)
	request.Done(peer.None, t0)
	peertest.Idle(t, g)
}

func TestAServerThatIsBackStartsSlowly(t *testing.T) {
	g, _ := checked(t, 2, func(c *peer.Config) { c.Servers[0].SlowStart = 10 * time.Second })
	c := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
	c.Fail(member(t, g, "a"), errBody, t0)
	c.Pass(member(t, g, "a"), t0, at(time.Second))
	if got := shares(g, 1000, at(2*time.Second))["a"]; got > 20 {
		t.Errorf("share after a second of ten: %v, want little", got)
	}
	if got := shares(g, 1000, at(12*time.Second))["a"]; got < 45 || got > 55 {
		t.Errorf("share after its slow start: %v, want half", got)
	}
}

func TestPanicIgnoresVerdictsButNotThatThereIsNone(t *testing.T) {
	g, log := checked(t, 4, func(c *peer.Config) { c.Guards.Panic = 50 })
	c := g.AddCheck(peer.CheckOptions{Name: "http"}, t0)
	for _, id := range []string{"a", "b", "c"} {
		c.Fail(member(t, g, id), errBody, t0)
	}
	if got := sequence(g, 8, t0); strings.Count(got, "a") != 2 {
		t.Errorf("picks in panic: %s, want every server", got)
	}
	c.Pass(member(t, g, "a"), t0, t0)
	if got := sequence(g, 4, t0); strings.ContainsAny(got, "bc") {
		t.Errorf("picks after panic: %s, want neither b nor c", got)
	}
	if got := strings.Join(*log, ", "); !strings.Contains(got, "panic c") || !strings.HasSuffix(got, "calm a") {
		t.Errorf("events: %s", got)
	}
	c.End(t0)
	g.AddCheck(peer.CheckOptions{Name: "http", Mandatory: true, Prove: true}, t0)
	if got := sequence(g, 1, t0); got != "@" {
		t.Errorf("picked %s, which has not been checked", got)
	}
}

// TestVerdictsAgreeWithAModel compares who can be picked with what checks, the
// configuration and the tracker have said, in any order.
func TestVerdictsAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g, _ := checked(t, 4, nil)
		now := t0
		checks := map[int]*peer.Check{}
		bad := map[string]bool{}
		members := map[string]bool{"a": true, "b": true, "c": true, "d": true}
		ids := []string{"a", "b", "c", "d"}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(rt, "check")
				if checks[i] == nil {
					checks[i] = g.AddCheck(peer.CheckOptions{Name: fmt.Sprint(i)}, now)
				}
			},
			"end": func(rt *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(rt, "check")
				if checks[i] != nil {
					checks[i].End(now)
					checks[i] = nil
					for _, id := range ids {
						delete(bad, fmt.Sprint(i, id))
					}
				}
			},
			"judge": func(rt *rapid.T) {
				i, id := rapid.IntRange(0, 1).Draw(rt, "check"), rapid.SampledFrom(ids).Draw(rt, "id")
				if checks[i] == nil || !members[id] {
					return
				}
				if rapid.Bool().Draw(rt, "passes") {
					checks[i].Pass(member(t, g, id), now, now)
					delete(bad, fmt.Sprint(i, id))
				} else {
					checks[i].Fail(member(t, g, id), errBody, now)
					bad[fmt.Sprint(i, id)] = true
				}
			},
			"configure": func(rt *rapid.T) {
				c := peer.Config{Method: peertest.RoundRobin{}}
				clear(members)
				for _, id := range ids {
					if rapid.IntRange(0, 3).Draw(rt, id) > 0 {
						members[id] = true
						c.Servers = append(c.Servers, peer.Server{ID: id, Backup: rapid.Bool().Draw(rt, "backup")})
					}
				}
				peertest.Apply(t, g, c, now)
				for key := range bad { // verdicts on those that went are gone with them
					if !members[key[1:]] {
						delete(bad, key)
					}
				}
			},
			"": func(rt *rapid.T) {
				wanted := map[string]bool{}
				primary := false
				for _, s := range g.Snapshot(t0) {
					id := s.Server.ID
					if bad["0"+id] || bad["1"+id] || s.Removed {
						continue
					}
					if !s.Server.Backup && !primary {
						primary = true
						clear(wanted)
					}
					if s.Server.Backup != primary {
						wanted[id] = true
					}
				}
				got := map[string]bool{}
				for range 12 {
					if id := peertest.Get(g, peer.SessionOptions{}, now); id != "@" {
						got[id] = true
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(wanted) {
					rt.Fatalf("picked %v, want %v (failed checks %v)", got, wanted, bad)
				}
			},
		})
	})
}
