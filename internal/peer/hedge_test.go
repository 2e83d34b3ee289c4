// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

func begin(t *testing.T, g *peer.Group, o peer.SessionOptions, now time.Time) (*peer.Session, *peer.Lease) {
	t.Helper()
	s := new(peer.Session)
	s.Begin(g, o)
	l, err := s.Next(now)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

func TestAServerWithASlowDialIsLeftAloneUntilItEnds(t *testing.T) {
	for _, o := range []peer.Outcome{peer.None, peer.Success, peer.Failed} {
		g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: plain(3)}, peer.Options{})
		s, slow := begin(t, g, peer.SessionOptions{}, t0)
		if slow.Peer().ID() != "s0" {
			t.Fatal(slow.Peer().ID())
		}
		fast, err := s.Hedge(slow, t0)
		if err != nil || fast.Peer().ID() == "s0" {
			t.Fatalf("Hedge() = %v, %v, want another peer", fast, err)
		}
		if got := shares(g, 100, t0); got["s0"] != 0 || !state(t, g, "s0").Hedged {
			t.Errorf("shares while the dial is slow = %v, want none for s0", got)
		}
		fast.Done(peer.Success, t0)
		if got := state(t, g, "s0").Conns; got != 1 {
			t.Errorf("conns of s0 = %d, want 1: its dial goes on", got)
		}
		slow.Done(o, t0)
		got := shares(g, 100, t0)["s0"]
		if want := o != peer.Failed; (got > 0) != want {
			t.Errorf("share of s0 after the dial ended with %v = %v", o, got)
		}
		peertest.Idle(t, g)
	}
}

func TestASlowServerIsTheLastResortOfOthers(t *testing.T) {
	servers := append(plain(2), peer.Server{ID: "spare", Backup: true}, peer.Server{ID: "down", Down: true})
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers}, peer.Options{})
	s, slow := begin(t, g, peer.SessionOptions{}, t0)
	fast, err := s.Hedge(slow, t0)
	if err != nil {
		t.Fatal(err)
	}
	third, err := s.Hedge(fast, t0)
	if err != nil || third.Peer().ID() != "spare" {
		t.Fatalf("Hedge() = %v, %v, want the backup", third, err)
	}
	if got := shares(g, 100, t0); got["spare"] != 100 {
		t.Errorf("shares = %v, want the backup, which is not slow", got)
	}
	if !s.Park(third, t0) {
		t.Fatal("Park() = false")
	}
	if got := shares(g, 100, t0); got["s0"] != 50 || got["s1"] != 50 {
		t.Errorf("all are slow: shares = %v, want both primaries", got)
	}
	if _, err := s.Hedge(third, t0); err != peer.ErrNoPeers {
		t.Errorf("Hedge() = %v: a slow server is no help against a slow one", err)
	}
	for _, l := range []*peer.Lease{slow, fast, third} {
		l.Done(peer.None, t0)
	}
	if got := shares(g, 100, t0); got["s0"] != 50 || got["s1"] != 50 {
		t.Errorf("shares = %v, want both primaries", got)
	}
	peertest.Idle(t, g)
}

func TestAHedgeNeedsAnotherPeerAndATryForIt(t *testing.T) {
	cases := []struct {
		name    string
		servers []peer.Server
		tries   int
	}{
		{"single", plain(1), 0},
		{"no try left", plain(3), 1},
		{"the other is down", []peer.Server{{ID: "a"}, {ID: "b", Down: true}, {ID: "c", Down: true}}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: c.servers, SingleCountsDown: true}, peer.Options{})
			s, slow := begin(t, g, peer.SessionOptions{Tries: c.tries}, t0)
			if l, err := s.Hedge(slow, t0); err != peer.ErrNoPeers {
				t.Errorf("Hedge() = %v, %v, want ErrNoPeers", l, err)
			}
			if peertest.Pick(g, peer.SessionOptions{}, t0) == nil {
				t.Error("a hedge that did not happen took the server out")
			}
		})
	}
}

func TestAHedgeIsATryAndNotARetry(t *testing.T) {
	policy := &peer.NextPolicy{Conditions: peer.DefaultConditions}
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: plain(4),
		Guards: peer.Guards{RetryBudget: 1}}, peer.Options{})
	s, slow := begin(t, g, peer.SessionOptions{Tries: 2}, t0)
	fast, err := s.Hedge(slow, t0)
	if err != nil {
		t.Fatalf("a budget for retries stopped a hedge: %v", err)
	}
	if fast.TriesLeft != 0 {
		t.Errorf("TriesLeft = %d, want 0", fast.TriesLeft)
	}
	if _, err := s.Hedge(fast, t0); err != peer.ErrNoPeers {
		t.Errorf("a second hedge with two tries: %v, want ErrNoPeers", err)
	}
	fast.Done(peer.Failed, t0)
	if s.MayRetry(policy, peer.OnError, peer.Progress{}, t0) {
		t.Error("MayRetry() = true while the last try is still dialling")
	}
	slow.Done(peer.Failed, t0)
	if s.MayRetry(policy, peer.OnError, peer.Progress{}, t0) {
		t.Error("MayRetry() = true, want both tries used up")
	}
	peertest.Idle(t, g)
}

func TestAHedgeComesTooLateForALeaseThatHasEnded(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: plain(3)}, peer.Options{})
	s, slow := begin(t, g, peer.SessionOptions{}, t0)
	slow.Done(peer.None, t0)
	if _, err := s.Hedge(slow, t0); err != peer.ErrNoPeers {
		t.Errorf("Hedge() = %v, want ErrNoPeers", err)
	}
	if state(t, g, "s0").Hedged {
		t.Error("the server is left out for good")
	}
}

func TestAConnectionThatComesAfterAllIsTheSessionsAgain(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: plain(3)}, peer.Options{})
	s, slow := begin(t, g, peer.SessionOptions{}, t0)
	fast, err := s.Hedge(slow, t0)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Park(fast, t0) || s.Park(fast, t0) {
		t.Error("Park() = false, or true for a lease that is parked")
	}
	s.Resume(slow, t0)
	if a, b := state(t, g, "s0").Hedged, state(t, g, "s1").Hedged; a || !b {
		t.Errorf("hedged: %v, %v, want the one that is parked only", a, b)
	}
	if got := shares(g, 100, t0); got["s0"] == 0 || got["s1"] != 0 {
		t.Errorf("shares = %v, want some for s0 and none for s1", got)
	}
	slow.Done(peer.Success, t0)
	fast.Done(peer.Failed, t0)
	if s.Park(fast, t0) {
		t.Error("a lease that has ended was parked")
	}
	peertest.Idle(t, g)
}

// TestAParkedServerThatWasSentNothingCanBeTried: its connection came too late,
// and then the faster server failed.
func TestAParkedServerThatWasSentNothingCanBeTried(t *testing.T) {
	for o, want := range map[peer.Outcome]error{peer.None: nil, peer.Failed: peer.ErrNoPeers} {
		g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: plain(2)}, peer.Options{})
		s, slow := begin(t, g, peer.SessionOptions{}, t0)
		fast, err := s.Hedge(slow, t0)
		if err != nil {
			t.Fatal(err)
		}
		slow.Done(o, t0)
		fast.Done(peer.Failed, t0)
		policy := &peer.NextPolicy{Conditions: peer.DefaultConditions}
		if got := s.MayRetry(policy, peer.OnError, peer.Progress{}, t0); got != (want == nil) {
			t.Errorf("outcome %v: MayRetry() = %v", o, got)
		}
		l, err := s.Next(t0)
		if err != want {
			t.Fatalf("outcome %v: Next() = %v, want %v", o, err, want)
		}
		if l != nil && l.Peer() != slow.Peer() {
			t.Errorf("Next() = %s, want s0", l.Peer().ID())
		}
		if l != nil {
			l.Done(peer.Success, t0)
		}
		peertest.Idle(t, g)
	}
}

func TestWhatMayFollowASlowConnection(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: plain(2)}, peer.Options{})
	s, l := begin(t, g, peer.SessionOptions{}, t0)
	defer l.Done(peer.Success, t0)
	limited := &peer.NextPolicy{Conditions: peer.DefaultConditions, Timeout: 3 * time.Second}
	if !s.MayHedge(limited, at(2*time.Second)) || s.MayHedge(limited, at(3*time.Second)) || !s.MayHedge(&peer.NextPolicy{}, at(time.Hour)) {
		t.Error("MayHedge() does not follow the time for further tries")
	}
	off := &peer.NextPolicy{}
	if !s.MayAwait(off, peer.OnError, peer.Progress{}, at(time.Hour)) {
		t.Error("nothing was sent: MayAwait() = false")
	}
	sent := peer.Progress{Sent: true, Replayable: true}
	if s.MayAwait(off, peer.OnError, sent, t0) || s.MayAwait(limited, peer.OnError, sent, t0) {
		t.Error("what was sent and may not be repeated: MayAwait() = true")
	}
	sent.Idempotent = true
	if !s.MayAwait(limited, peer.OnError, sent, t0) {
		t.Error("what was sent and may be repeated: MayAwait() = false")
	}
}

// TestHedgesAndEndsThatCrossLoseNothing: the dial ends, without a lock, while
// the hedge is being made.
func TestHedgesAndEndsThatCrossLoseNothing(t *testing.T) {
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: plain(3)}, peer.Options{})
	for range 2000 {
		s, slow := begin(t, g, peer.SessionOptions{}, t0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			slow.Done(peer.Success, t0)
		}()
		if fast, err := s.Hedge(slow, t0); err == nil {
			fast.Done(peer.Success, t0)
		}
		<-done
	}
	for _, st := range g.Snapshot(t0) {
		if st.Hedged || st.Conns != 0 {
			t.Errorf("%s: hedged %v, conns %d", st.Server.ID, st.Hedged, st.Conns)
		}
	}
	if got := shares(g, 300, t0); len(got) != 3 {
		t.Errorf("shares = %v, want all three servers", got)
	}
}

// probing returns a group of two whose first server wants probes, and what
// happened in it.
func probing(t *testing.T) (*peer.Group, *[]string) {
	var events []string
	names := map[peer.EventKind]string{peer.ServerDown: "down", peer.ServerUp: "up", peer.ProbeWanted: "probe"}
	servers := plain(2)
	servers[0].Probe = true
	g := peertest.Group(t, peer.Config{Method: peertest.RoundRobin{}, Servers: servers}, peer.Options{
		OnEvent: func(e peer.Event) { events = append(events, names[e.Kind]+" "+e.Peer.ID()) },
	})
	return g, &events
}

func TestNoRequestMeetsAServerBeforeItsProbeHas(t *testing.T) {
	g, events := probing(t)
	p := g.Peers()[0]
	fail(t, g, "s0", t0)
	if got := shares(g, 50, at(11*time.Second))["s0"]; got != 0 {
		t.Fatalf("s0 got %v %% before its probe", got)
	}
	g.Probed(p, false, errors.New("refused"), at(11*time.Second))
	if st := state(t, g, "s0"); st.LastError != "refused" || !st.Until.Equal(at(21*time.Second)) {
		t.Fatalf("after a failed probe: %+v, want out until 21 s", st)
	}
	if got := shares(g, 50, at(22*time.Second))["s0"]; got != 0 {
		t.Fatalf("s0 got %v %% before its second probe", got)
	}
	if !state(t, g, "s0").AwaitsProbe {
		t.Error("AwaitsProbe = false")
	}
	g.Probed(p, true, nil, at(22*time.Second))
	// As after any time out: one request tries it first.
	var ids []string
	var leases []*peer.Lease
	for range 4 {
		l := peertest.Pick(g, peer.SessionOptions{}, at(22*time.Second))
		ids, leases = append(ids, l.Peer().ID()), append(leases, l)
	}
	if n := count(ids, "s0"); n != 1 {
		t.Errorf("picks after the probe = %v, want s0 once", ids)
	}
	for _, l := range leases {
		l.Done(peer.Success, at(22*time.Second))
	}
	if got := shares(g, 50, at(22*time.Second))["s0"]; got != 50 {
		t.Errorf("share of s0 = %v, want 50", got)
	}
	if want := "[down s0 probe s0 probe s0 up s0]"; fmt.Sprint(*events) != want {
		t.Errorf("events = %v, want %s", *events, want)
	}
}

func count(of []string, what string) (n int) {
	for _, s := range of {
		if s == what {
			n++
		}
	}
	return n
}

func TestAProbeThatIsNeverAnsweredIsWantedAgain(t *testing.T) {
	g, events := probing(t)
	fail(t, g, "s0", t0)
	sequence(g, 10, at(11*time.Second))
	sequence(g, 10, at(20*time.Second))
	if want := "[down s0 probe s0]"; fmt.Sprint(*events) != want {
		t.Fatalf("events = %v, want %s", *events, want)
	}
	sequence(g, 10, at(22*time.Second))
	if want := "[down s0 probe s0 probe s0]"; fmt.Sprint(*events) != want {
		t.Errorf("events = %v, want %s", *events, want)
	}
}

func TestAnAnswerNobodyAskedForChangesNothing(t *testing.T) {
	g, _ := probing(t)
	g.Probed(g.Peers()[1], false, nil, t0)
	g.Probed(g.Peers()[0], true, nil, t0)
	if st := state(t, g, "s1"); st.Fails != 0 {
		t.Errorf("fails = %d, want 0", st.Fails)
	}
}
