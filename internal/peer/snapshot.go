// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// State is a peer as it was at one moment.
type State struct {
	Server Server
	Conns  int64
	// Removed: not a member any more, but still held.
	Removed bool
	// Full: as many leases are open as MaxConns allows.
	Full bool
	// CurrentWeight and EffectiveWeight are those of smooth weighted round robin.
	CurrentWeight, EffectiveWeight int64
	// Fails is what the tracker counts; Until the end of the time out, zero if
	// the peer is not disabled; DownSince when that began.
	Fails            int
	Until, DownSince time.Time
	// Picks and Failures count since the peer was added; Retries are the picks
	// that were not the first of their session. Selected is the time of the last.
	Picks, Retries, Failures uint64
	Selected                 time.Time
	// Reasons are the failures of tries; others come from probes.
	Reasons Reasons
	// Stats is live: it goes on counting.
	Stats       *Stats
	LastFailure time.Time
	LastError   string
	// SlowStart is how much of its weight the peer has, in percent: less than 100
	// while it starts slowly.
	SlowStart int
	// Draining: reached by sticky sessions only, and still holding some.
	Draining bool
	// Spared: failed often enough to be out, but max_unavailable forbids it.
	Spared bool
	// Hedged: not picked because a connection attempt is slow.
	Hedged bool
	// AwaitsProbe: not picked before a probe has reached it.
	AwaitsProbe bool
	// Masked: not available, says the front.
	Masked bool
	// CloseBy is when what a drained, down or removed peer holds is closed, zero: it
	// is not; Overdue: that was before now.
	CloseBy time.Time
	Overdue bool
	// Checks are the active checks that have it out.
	Checks []CheckState
}

// Status is the state of a group that is not one of its peers'.
type Status struct {
	// Waiting is the length of the queue, QueueLimit its bound.
	Waiting, QueueLimit int
	// Panic: so few primary, or backup, servers are up that health is ignored.
	Panic, BackupPanic bool
	// Active is the number of open leases and Retrying how many of them are
	// further tries; both are 0 without a retry budget.
	Active, Retrying int64
	// Up is the number of servers that are neither down nor draining nor out, full
	// or not; Members that of all.
	Up, Members int
	// Requests are the sessions that have had a server, Retries their further
	// tries, Refused how often a session found no server.
	Requests, Retries, Refused uint64
}

// Status returns the state of the group.
func (g *Group) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{
		Waiting: g.queue.n, QueueLimit: g.queue.limit,
		Panic: g.lists[0].panics, BackupPanic: g.lists[1].panics,
		Active: g.active.Load(), Retrying: g.retrying.Load(),
		Up: g.lists[0].up + g.lists[1].up, Members: len(g.lists[0].peers) + len(g.lists[1].peers),
		Requests: g.requests, Retries: g.retries, Refused: g.refused,
	}
}

// Available reports whether the peer could have been picked.
func (s *State) Available(now time.Time) bool {
	return !s.Removed && !s.Full && !s.Masked && !s.Hedged && !s.AwaitsProbe && len(s.Checks) == 0 &&
		s.Server.usable() && !now.Before(s.Until)
}

// Snapshot returns all peers as they are now: primaries, backups, then removed
// ones.
func (g *Group) Snapshot(now time.Time) []State {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]State, 0, len(g.lists[0].peers)+len(g.lists[1].peers)+len(g.removed))
	for _, l := range g.lists {
		for _, p := range l.peers {
			out = append(out, p.stateLocked(now))
		}
	}
	for _, p := range g.removed {
		out = append(out, p.stateLocked(now))
	}
	return out
}

func (p *Peer) stateLocked(now time.Time) State {
	s := p.conf.Load()
	var selected time.Time
	if p.selected != 0 {
		selected = time.Unix(0, p.selected)
	}
	return State{
		Retries: p.retries, Selected: selected, Reasons: p.reasons, Stats: &p.Stats,
		Server: *s, Conns: p.conns.Load(), Removed: p.list == nil, Full: p.full(s),
		CurrentWeight: p.currentWeight(), EffectiveWeight: p.health.Weight,
		Fails: p.health.Fails, Until: p.health.Until, DownSince: p.downSince,
		Picks: p.picks, Failures: p.fails, LastFailure: p.lastFail, LastError: p.lastErr,
		SlowStart: p.percentAt(now), Draining: s.Drain && p.conns.Load() > 0,
		Spared: p.spared, Hedged: p.hedges > 0, AwaitsProbe: s.Probe && p.probe == probeWanted, Masked: p.masked,
		CloseBy: p.closeBy(), Overdue: p.overdue.Load(),
		Checks: p.checkStates(),
	}
}

// Peers returns the members, primaries first.
func (g *Group) Peers() []*Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*Peer, 0, len(g.lists[0].peers)+len(g.lists[1].peers))
	return append(append(out, g.lists[0].peers...), g.lists[1].peers...)
}

// ResetCounters sets what counts since the peers were added back to zero. What
// decides, such as failures and weights, stays.
func (g *Group) ResetCounters() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests, g.retries, g.refused = 0, 0, 0
	for _, l := range g.lists {
		for _, p := range l.peers {
			p.picks, p.retries, p.fails, p.reasons = 0, 0, 0, Reasons{}
			p.Stats.reset()
			p.lastFail, p.lastErr = time.Time{}, ""
		}
	}
}
