// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
	"github.com/caddy-upstream/caddy-upstream/internal/timing"
	"github.com/caddy-upstream/caddy-upstream/leastconn"
	"github.com/caddy-upstream/caddy-upstream/modules/hash"
	"github.com/caddy-upstream/caddy-upstream/modules/iphash"
	"github.com/caddy-upstream/caddy-upstream/modules/leasttime"
	"github.com/caddy-upstream/caddy-upstream/modules/random"
	"github.com/caddy-upstream/caddy-upstream/smoothrr"
)

var methods = map[string]peer.Method{
	"round_robin":           smoothrr.Method{},
	"least_conn":            leastconn.Method{},
	"hash":                  hash.Plain{},
	"hash consistent":       hash.Consistent{},
	"hash balance_factor":   hash.Consistent{BalanceFactor: 1.25},
	"ip_hash":               iphash.Method{},
	"random":                random.Plain{},
	"random two":            random.LeastConn{},
	"random two least_time": random.LeastTime{Mode: timing.Mode{Metric: peer.LastByte}},
	"least_time":            leasttime.LeastTime{Mode: timing.Mode{Metric: peer.FirstByte}},
	"least_time inflight":   leasttime.LeastTime{Mode: timing.Mode{Metric: peer.FirstByte, Inflight: true}},
	"least_time ewma":       leasttime.EWMA{Metric: peer.FirstByte},
}

var names = func() (names []string) {
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// world is a group with everything that may happen to it, and what must hold.
type world struct {
	t       *rapid.T
	group   *peer.Group
	config  peer.Config
	now     time.Time
	walkers []*walker
	ids     int
}

// walker is a session with the leases it holds.
type walker struct {
	world   *world
	hint    string
	session peer.Session
	waiter  *peer.Waiter
	tried   map[string]bool // in the current list
	backup  bool
	leases  []*peer.Lease
	parked  map[*peer.Lease]bool
}

func (w *world) draw(low, high int, what string) int {
	return rapid.IntRange(low, high).Draw(w.t, what)
}

func (w *world) server(id string) peer.Server {
	return peer.Server{
		ID: id, Address: id, Name: id, Route: "r" + id, Line: fmt.Sprint("line", w.draw(0, 8, "line")),
		Weight:   rapid.SampledFrom([]int{1, 1, 2, 5, 40}).Draw(w.t, "weight"),
		MaxConns: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(w.t, "max_conns"),
		MaxFails: w.draw(0, 2, "max_fails"), FailTimeout: time.Duration(w.draw(0, 5, "fail_timeout")) * time.Second,
		Backup: w.draw(0, 3, "backup") == 0, Down: w.draw(0, 7, "down") == 0, Drain: w.draw(0, 7, "drain") == 0,
		SlowStart: time.Duration(w.draw(0, 1, "slow_start")) * 10 * time.Second,
		Probe:     w.draw(0, 4, "probe") == 0,
	}
}

func (w *world) apply() {
	w.config.Method = methods[rapid.SampledFrom(names).Draw(w.t, "method")]
	if w.draw(0, 2, "guards") == 0 {
		w.config.Guards = peer.Guards{MaxUnavailable: w.draw(0, 100, "max_unavailable"), RetryBudget: w.draw(0, 100, "retry_budget")}
	}
	w.config.Queue = w.draw(0, 4, "queue")
	if err := w.group.Apply(w.config, w.now); err != nil {
		w.t.Fatal(err)
	}
	w.check()
}

// taken is called for each lease as soon as it is known.
func (k *walker) taken(l *peer.Lease, before map[string]peer.State) {
	w, p := k.world, l.Peer()
	s, was := p.Server(), before[p.ID()]
	another := k.another(before)
	if s.Backup && !k.backup {
		k.backup, k.tried = true, map[string]bool{}
	}
	switch single := len(w.config.Servers) == 1; {
	case s.Down:
		w.t.Fatalf("%s was picked, and it is down", s.ID)
	case s.Drain && k.hint != p.SID():
		w.t.Fatalf("%s was picked without a hint, and it is draining", s.ID)
	case s.MaxConns > 0 && p.Conns() > int64(s.MaxConns):
		w.t.Fatalf("%s has %d connections, more than %d", s.ID, p.Conns(), s.MaxConns)
	case k.tried[s.ID] && !single && w.usable() != 1:
		w.t.Fatalf("%s was picked, and the session had tried it", s.ID)
	case was.Hedged && another != "":
		w.t.Fatalf("%s was picked, and a dial to it is slow; %s was there, too", s.ID, another)
	case !was.Until.IsZero() && !w.now.After(was.Until) && w.usable() != 1:
		w.t.Fatalf("%s was picked, and it is disabled until %s", s.ID, was.Until.Sub(w.now))
	case was.AwaitsProbe && w.usable() != 1:
		w.t.Fatalf("%s was picked, and no probe has reached it", s.ID)
	}
	k.tried[s.ID] = true
	k.leases = append(k.leases, l)
}

// another is a server that the session might be given and that is not slow to
// connect.
func (k *walker) another(states map[string]peer.State) string {
	w := k.world
	for id, s := range states {
		switch {
		case s.Hedged || !s.Available(w.now) || s.Until.Equal(w.now):
		case s.Server.Backup != k.backup && k.backup:
		case s.Server.Backup == k.backup && k.tried[id]:
		default:
			return id
		}
	}
	return ""
}

// usable is the number of servers neither down nor draining.
func (w *world) usable() (n int) {
	for _, s := range w.config.Servers {
		if !s.Down && !s.Drain {
			n++
		}
	}
	return n
}

func (w *world) states() map[string]peer.State {
	states := map[string]peer.State{}
	for _, s := range w.group.Snapshot(time.Now()) {
		states[s.Server.ID] = s
	}
	return states
}

func (k *walker) next() {
	w := k.world
	before := w.states()
	waiter := &peer.Waiter{Ready: func() {}}
	l, err := k.session.NextOrWait(waiter, w.now)
	switch {
	case err == peer.ErrQueued:
		k.waiter = waiter
	case err == nil:
		k.taken(l, before)
	}
}

// check compares conns with the leases that are open.
func (w *world) check() {
	open := map[*peer.Peer]int64{}
	for _, k := range w.walkers {
		if k.waiter != nil && w.group.Status().Waiting == 0 {
			k.leave()
		}
		for _, l := range k.leases {
			open[l.Peer()]++
		}
	}
	for _, p := range w.group.Peers() {
		if w.group.Status().Waiting == 0 && p.Conns() != open[p] {
			w.t.Fatalf("conns of %s = %d, open leases %d", p.ID(), p.Conns(), open[p])
		}
	}
}

func (k *walker) leave() {
	if l := k.waiter.Leave(); l != nil {
		k.leases = append(k.leases, l)
	}
	k.waiter = nil
}

// hedge asks one more server, parks a connection, or goes on with a parked one.
func (k *walker) hedge() {
	w, l := k.world, k.leases[0]
	switch before := w.states(); {
	case k.parked[l] && w.draw(0, 1, "resume") == 0:
		k.session.Resume(l, w.now)
		k.parked[l] = false
	case w.draw(0, 2, "park") == 0:
		if k.session.Park(l, w.now) == k.parked[l] {
			w.t.Fatalf("Park() = %v of a lease that is parked: %v", !k.parked[l], k.parked[l])
		}
		k.parked[l] = true
	default:
		if next, err := k.session.Hedge(l, w.now); err == nil {
			k.parked[l] = true
			if before[next.Peer().ID()].Hedged {
				w.t.Fatalf("%s was hedged with, and a dial to it is slow, too", next.Peer().ID())
			}
			k.taken(next, before)
		}
	}
}

func (w *world) step() {
	switch op := w.draw(0, 19, "op"); {
	case op < 8 || len(w.walkers) == 0:
		k := &walker{world: w, tried: map[string]bool{}, parked: map[*peer.Lease]bool{}}
		o := peer.SessionOptions{Key: fmt.Sprint("k", w.draw(0, 9, "key")), Client: netip.AddrFrom4([4]byte{10, 0, byte(w.draw(0, 9, "client")), 1})}
		if w.draw(0, 2, "bound") == 0 {
			o.Hint = "r" + w.config.Servers[w.draw(0, len(w.config.Servers)-1, "hint")].ID
			k.hint = o.Hint
		}
		k.session.Begin(w.group, o)
		w.walkers = append(w.walkers, k)
		k.next()
	case op < 15:
		k := w.walkers[w.draw(0, len(w.walkers)-1, "walker")]
		switch {
		case k.waiter != nil:
			k.leave()
		case len(k.leases) == 0:
			return
		case op < 9:
			k.leases[0].Observe(peer.FirstByte, time.Duration(w.draw(0, 300, "ms"))*time.Millisecond, w.now)
		case op < 10:
			k.hedge()
		default:
			o := peer.Outcome(w.draw(0, 4, "outcome"))
			k.leases[0].Done(o, w.now)
			if o == peer.None && k.parked[k.leases[0]] { // nothing was sent there
				delete(k.tried, k.leases[0].Peer().ID())
			}
			k.leases = k.leases[1:]
			if o >= peer.Failed && len(k.leases) == 0 {
				k.next()
			}
		}
	case op < 17:
		w.now = w.now.Add(time.Duration(w.draw(1, 6000, "wait")) * time.Millisecond)
		w.group.Wake(w.now)
	case op < 18:
		for _, p := range w.group.Peers() {
			w.group.Probed(p, w.draw(0, 1, "reached") == 1, nil, w.now)
		}
	default:
		servers := slices.Clone(w.config.Servers)
		switch i := w.draw(0, len(servers), "which"); {
		case i == len(servers):
			w.ids++
			servers = append(servers, w.server(fmt.Sprint("s", w.ids)))
		case len(servers) > 1 && w.draw(0, 1, "remove") == 0:
			servers = slices.Delete(servers, i, i+1)
		default:
			servers[i] = w.server(servers[i].ID)
		}
		w.config.Servers = servers
		w.apply()
	}
	w.check()
}

// TestNoMethodPicksWhatMayNotBePicked drives groups with every method and every
// server state through random histories.
func TestNoMethodPicksWhatMayNotBePicked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: peertest.Start}
		w.group = peer.NewGroup(peer.Options{IntN: func(n int) int { return w.draw(0, n-1, "random") }})
		w.config = peer.Config{Tracker: peertest.Rules{}}
		for range w.draw(1, 8, "servers") {
			w.ids++
			w.config.Servers = append(w.config.Servers, w.server(fmt.Sprint("s", w.ids)))
		}
		w.apply()
		for range w.draw(1, 80, "steps") {
			w.step()
		}
		for _, k := range w.walkers {
			if k.waiter != nil {
				k.leave()
			}
		}
		for _, k := range w.walkers {
			for _, l := range k.leases {
				l.Done(peer.None, w.now)
			}
		}
		for _, s := range w.group.Snapshot(time.Now()) {
			if s.Conns != 0 || s.Removed || s.Hedged {
				t.Fatalf("%s after all leases ended: %+v", s.Server.ID, s)
			}
		}
		if st := w.group.Status(); st.Active != 0 || st.Retrying != 0 || st.Waiting != 0 {
			t.Fatalf("Status() at the end = %+v", st)
		}
	})
}
