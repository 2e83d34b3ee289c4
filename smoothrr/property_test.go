// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package smoothrr

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// naive is smooth weighted round robin with max_fails and fail_timeout as
// nginx writes it: one loop over one list, no shared code with the engine.
type naive struct {
	servers []*naiveServer
	total   int // configured weight
}

type naiveServer struct {
	peer.Server
	cw, ew, conns, fails int
	accessed, checked    time.Time
}

type naiveWalk struct {
	tried map[*naiveServer]bool
	hint  string
}

func (m *naive) eligible(s *naiveServer, w *naiveWalk, now time.Time) bool {
	return !s.Drain && m.hintable(s, w, now)
}

func (m *naive) hintable(s *naiveServer, w *naiveWalk, now time.Time) bool {
	if w.tried[s] || s.Down {
		return false
	}
	if s.MaxFails > 0 && s.fails >= s.MaxFails && now.Sub(s.checked) <= s.FailTimeout {
		return false
	}
	return s.MaxConns == 0 || s.conns < s.MaxConns
}

// hinted returns the server that w hints at, and whether it is charged for
// its choice.
func (m *naive) hinted(w *naiveWalk, now time.Time) (best *naiveServer, charged bool) {
	for _, s := range m.servers {
		if s.ID == w.hint && m.hintable(s, w, now) {
			return s, s.cw > -(m.total - s.Weight)
		}
	}
	return nil, true
}

func (m *naive) pick(w *naiveWalk, now time.Time) *naiveServer {
	hinted, charged := m.hinted(w, now)
	best := hinted
	if charged {
		best = m.pass(w, hinted, now)
	}
	if best == nil {
		return nil
	}
	if now.Sub(best.checked) > best.FailTimeout {
		best.checked = now
	}
	best.conns++
	w.tried[best] = true
	return best
}

// pass is one loop over all servers, which winner wins if it is not nil.
func (m *naive) pass(w *naiveWalk, winner *naiveServer, now time.Time) *naiveServer {
	var best *naiveServer
	total := 0
	for _, s := range m.servers {
		if !m.eligible(s, w, now) {
			continue
		}
		s.cw += s.ew
		total += s.ew
		if s.ew < s.Weight {
			s.ew++
		}
		if best == nil || s.cw > best.cw {
			best = s
		}
	}
	if winner != nil {
		best = winner
	}
	if best != nil {
		best.cw -= total
	}
	return best
}

func (m *naive) done(s *naiveServer, o peer.Outcome, now time.Time) {
	s.conns--
	switch o {
	case peer.Success, peer.Next:
		if s.accessed.Before(s.checked) {
			s.fails = 0
		}
	case peer.Failed, peer.Stale:
		s.fails++
		s.accessed, s.checked = now, now
		if s.MaxFails > 0 {
			s.ew = max(0, s.ew-s.Weight/s.MaxFails)
		}
	}
}

// configure replaces the servers; weights shrink as the engine documents.
func (m *naive) configure(servers []peer.Server) {
	old := map[string]*naiveServer{}
	for _, s := range m.servers {
		old[s.ID] = s
	}
	m.servers = nil
	was := m.total
	m.total = 0
	for _, c := range servers {
		s := old[c.ID]
		if s == nil {
			s = &naiveServer{ew: c.Weight}
		} else if s.ew == s.Weight {
			s.ew = c.Weight
		} else if s.Weight != c.Weight {
			s.ew = min(c.Weight, s.ew*c.Weight/s.Weight)
		}
		s.Server = c
		m.servers = append(m.servers, s)
		m.total += c.Weight
	}
	if m.total < was {
		for _, s := range m.servers {
			s.cw = int(float64(s.cw) * float64(m.total) / float64(was))
		}
	}
}

func drawServer(t *rapid.T, id string) peer.Server {
	return peer.Server{
		ID: id, Address: id, Route: id, Weight: rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5, 100}).Draw(t, "weight"),
		MaxFails:    rapid.IntRange(0, 3).Draw(t, "max_fails"),
		FailTimeout: time.Duration(rapid.IntRange(0, 4).Draw(t, "fail_timeout")) * time.Second,
		MaxConns:    rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "max_conns"),
		Down:        rapid.IntRange(0, 9).Draw(t, "down") == 0,
		Drain:       rapid.IntRange(0, 9).Draw(t, "drain") == 0,
	}
}

// TestPicksAndWeightsEqualTheNaiveLoop drives engine and model through the same
// random history of picks, sticky or not, retries, outcomes, waits and changes, and compares
// every pick and, after every step, every weight.
func TestPicksAndWeightsEqualTheNaiveLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		ids := 0
		var servers []peer.Server
		for range rapid.IntRange(2, 12).Draw(t, "servers") {
			servers = append(servers, drawServer(t, fmt.Sprint("s", ids)))
			ids++
		}
		group, model := peer.NewGroup(peer.Options{Name: "g"}), &naive{}
		apply := func() {
			cfg := peer.Config{Servers: servers, Method: Method{}, Tracker: peertest.Rules{}, SingleCountsDown: true}
			if err := group.Apply(cfg, now); err != nil {
				t.Fatal(err)
			}
			model.configure(servers)
		}
		apply()

		type walk struct {
			session *peer.Session
			lease   *peer.Lease
			model   *naiveWalk
			holds   *naiveServer
		}
		var walks []*walk
		next := func(w *walk) bool {
			want := model.pick(w.model, now)
			lease, err := w.session.Next(now)
			switch {
			case err != nil && want == nil:
				return false
			case err != nil || want == nil || lease.Peer().ID() != want.ID:
				t.Fatalf("Next() = %v, %v, want %v", lease, err, want)
			case lease.CurrentWeight != int64(want.cw):
				t.Fatalf("current weight of %s = %d, want %d", want.ID, lease.CurrentWeight, want.cw)
			}
			w.lease, w.holds = lease, want
			return true
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 19).Draw(t, "op"); {
			case op < 9 || len(walks) == 0 && op < 17:
				hint := ""
				if rapid.IntRange(0, 2).Draw(t, "bound") == 0 {
					hint = servers[rapid.IntRange(0, len(servers)-1).Draw(t, "hint")].ID
				}
				w := &walk{session: new(peer.Session), model: &naiveWalk{tried: map[*naiveServer]bool{}, hint: hint}}
				w.session.Begin(group, peer.SessionOptions{Hint: hint})
				if next(w) {
					walks = append(walks, w)
				}
			case op < 17:
				i := rapid.IntRange(0, len(walks)-1).Draw(t, "walk")
				w := walks[i]
				o := rapid.SampledFrom([]peer.Outcome{peer.Success, peer.Success, peer.Failed, peer.Next, peer.None, peer.Stale}).Draw(t, "outcome")
				w.lease.Done(o, now)
				model.done(w.holds, o, now)
				if o == peer.Success || o == peer.None || !next(w) {
					walks = append(walks[:i], walks[i+1:]...)
				}
			case op < 18:
				now = now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "wait")) * time.Millisecond)
			case op < 19:
				i := rapid.IntRange(0, len(servers)-1).Draw(t, "server")
				servers = append([]peer.Server(nil), servers...)
				servers[i] = drawServer(t, servers[i].ID)
				apply()
			default:
				servers = append([]peer.Server(nil), servers...)
				if i := rapid.IntRange(0, len(servers)).Draw(t, "which"); i < len(servers) && len(servers) > 2 {
					servers = append(servers[:i], servers[i+1:]...)
				} else {
					servers = append(servers, drawServer(t, fmt.Sprint("s", ids)))
					ids++
				}
				apply()
			}
			compare(t, group, model)
		}
		for _, w := range walks {
			w.lease.Done(peer.None, now)
		}
		for _, s := range group.Snapshot(time.Now()) {
			if s.Conns != 0 || s.Removed {
				t.Fatalf("%s after all leases ended: conns %d, removed %v", s.Server.ID, s.Conns, s.Removed)
			}
		}
	})
}

func compare(t *rapid.T, group *peer.Group, model *naive) {
	t.Helper()
	states := group.Snapshot(time.Now())
	for i, m := range model.servers {
		s := states[i]
		if s.Server.ID != m.ID || s.CurrentWeight != int64(m.cw) || s.EffectiveWeight != int64(m.ew) || s.Conns != int64(m.conns) || s.Fails != m.fails {
			t.Fatalf("%s: cw %d ew %d conns %d fails %d, want %s: %d %d %d %d", s.Server.ID,
				s.CurrentWeight, s.EffectiveWeight, s.Conns, s.Fails, m.ID, m.cw, m.ew, m.conns, m.fails)
		}
	}
}
