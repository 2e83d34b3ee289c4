// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"slices"
	"strings"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// GroupState is a group as the API shows it.
type GroupState struct {
	// Name is the name in the configuration. That of a list is its first address,
	// where others would have the same name with a number.
	Name string `json:"name"`
	// Static is true for the list of addresses of a handler, which has no name
	// of its own in the configuration.
	Static bool `json:"static,omitempty"`
	// Queue is the number of requests that wait for a server, QueueLimit its bound.
	Queue      int `json:"queue,omitempty"`
	QueueLimit int `json:"queue_limit,omitempty"`
	// Requests have had a server, Retries are their further tries, Refused found
	// no server.
	Requests uint64 `json:"requests"`
	Retries  uint64 `json:"retries"`
	Refused  uint64 `json:"refused"`
	// Panic: so few servers are up that their health is ignored.
	Panic bool `json:"panic,omitempty"`
	// Servers are the peers: primaries, backups, and removed ones that still hold
	// requests. A server with several addresses has one entry for each.
	Servers []ServerState `json:"servers"`
}

// ServerState is a server as the API shows it: its configuration, and state.
type ServerState struct {
	ID string `json:"id"`
	// Server is the id of the server of which this is one address, if it has
	// an id of its own: changes are made by that one.
	Server      string `json:"server,omitempty"`
	Address     string `json:"address"`
	Weight      int    `json:"weight"`
	MaxConns    int    `json:"max_conns"`
	MaxFails    int    `json:"max_fails"`
	FailTimeout string `json:"fail_timeout"`
	SlowStart   string `json:"slow_start,omitempty"`
	// DrainTimeout is how long the server may finish what it has; empty: no limit.
	DrainTimeout string `json:"drain_timeout,omitempty"`
	Route        string `json:"route,omitempty"`
	Probe        string `json:"probe,omitempty"`
	Service      string `json:"service,omitempty"`
	Resolve      bool   `json:"resolve,omitempty"`
	Backup       bool   `json:"backup,omitempty"`
	Down         bool   `json:"down,omitempty"`
	Drain        bool   `json:"drain,omitempty"`

	// State of a server with several addresses is the sum of theirs.
	State LiveState `json:"state"`

	// Peers are the addresses of a server whose address is a name. Only the
	// answer about one server has them.
	Peers []ServerState `json:"peers,omitempty"`
}

// LiveState is what changes by itself.
type LiveState struct {
	// State is up, down, draining, unhealthy, full, unresolved or removed.
	State           string `json:"state"`
	Conns           int64  `json:"conns"`
	CurrentWeight   int64  `json:"current_weight"`
	EffectiveWeight int64  `json:"effective_weight"`
	Fails           int    `json:"fails"`
	// UnhealthyFor is the time left until an unhealthy server is tried again.
	UnhealthyFor string     `json:"unhealthy_for,omitempty"`
	DownSince    *time.Time `json:"down_since,omitempty"`
	// ClosesIn is the time left until what a drained, down or removed server still
	// has is closed.
	ClosesIn string `json:"closes_in,omitempty"`
	// SlowStart is how much of its weight a server has that starts slowly, in percent.
	SlowStart int `json:"slow_start_percent,omitempty"`
	// Picks are the tries at this server, Retries those of them that followed a
	// try at another one. The requests of a group are its picks less its retries.
	Picks    uint64     `json:"picks"`
	Retries  uint64     `json:"retries,omitempty"`
	Selected *time.Time `json:"selected,omitempty"`
	Failures uint64     `json:"failures"`
	// Reasons are the failures by next_upstream's words.
	Reasons     map[string]uint64 `json:"failures_by_reason,omitempty"`
	LastFailure *time.Time        `json:"last_failure,omitempty"`
	LastError   string            `json:"last_error,omitempty"`
	// Checks are the active checks that have the server out, with the reason.
	Checks []CheckState `json:"checks,omitempty"`
	// Responses are the answers by class: 2xx and so on.
	Responses map[string]uint64 `json:"responses,omitempty"`
	// Broken are the responses that the server broke off after their header, which
	// is no failure: nobody else can go on with them.
	Broken uint64 `json:"broken_responses,omitempty"`
	// Sessions are the stream sessions that were connected.
	Sessions uint64 `json:"sessions,omitempty"`
	// Sent and Received are the bytes to and from the server, counted at the end
	// of a request or session.
	Sent     uint64 `json:"bytes_sent"`
	Received uint64 `json:"bytes_received"`
	// HeaderTime and ResponseTime are those of the last minute.
	HeaderTime   *Times `json:"header_time,omitempty"`
	ResponseTime *Times `json:"response_time,omitempty"`
	// Keepalive are the kept connections to the server.
	Keepalive *KeepaliveState `json:"keepalive,omitempty"`
}

// Times are in seconds.
type Times struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
}

// KeepaliveState is what the cache of idle connections has of one server.
type KeepaliveState struct {
	Idle    int    `json:"idle"`
	Created uint64 `json:"created"`
	Reused  uint64 `json:"reused"`
}

// times returns what a histogram says of the last minute; nil: nothing.
func times(h *peer.Histogram, now time.Time) *Times {
	t, ok := h.Window(now)
	if !ok {
		return nil
	}
	return &Times{Count: t.Count, Mean: t.Mean.Seconds(), P50: t.P50.Seconds(), P90: t.P90.Seconds(), P99: t.P99.Seconds()}
}

// classes returns the responses by class; nil: none.
func classes(s *peer.Stats) map[string]uint64 {
	var out map[string]uint64
	for i := range s.Responses {
		if n := s.Responses[i].Load(); n > 0 {
			if out == nil {
				out = map[string]uint64{}
			}
			out[string(rune('1'+i))+"xx"] = n
		}
	}
	return out
}

// connectionsLocked returns the kept connections by address.
func (r *Runtime) connectionsLocked() map[string]*KeepaliveState {
	out := map[string]*KeepaliveState{}
	for _, shared := range r.shared {
		counter, ok := shared.(exchange.ConnCounter)
		if !ok {
			continue
		}
		for _, c := range counter.ConnStats() {
			address := strings.TrimPrefix(c.Address, "tcp/")
			k := out[address]
			if k == nil {
				k = new(KeepaliveState)
				out[address] = k
			}
			k.Idle += c.Idle
			k.Created += c.Created
			k.Reused += c.Reused
		}
	}
	return out
}

// Groups returns the state of all groups in use, by name.
func Groups(now time.Time) []GroupState {
	out := []GroupState{}
	for _, r := range allRuntimes() {
		state, _ := r.state(now)
		out = append(out, state)
	}
	return out
}

// state returns what the API shows of the group, and the ETag of its servers.
func (r entry) state(now time.Time) (GroupState, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.group.Status()
	g := GroupState{
		Name: r.id, Static: r.key.list != "", Servers: []ServerState{},
		Requests: status.Requests, Retries: status.Retries, Refused: status.Refused,
		Queue: status.Waiting, QueueLimit: status.QueueLimit, Panic: status.Panic || status.BackupPanic,
	}
	lines := r.linesLocked()
	owners := make(map[string]*Server, len(lines))
	for _, l := range lines {
		for _, p := range l.peers {
			owners[p.ID] = l.server
		}
	}
	kept := r.connectionsLocked()
	for _, s := range r.group.Snapshot(now) {
		owner := owners[s.Server.ID]
		if s.Removed {
			owner = nil
		}
		p := peerState(s, owner, now)
		p.State.Keepalive = kept[p.Address]
		g.Servers = append(g.Servers, p)
	}
	for _, l := range lines {
		if len(l.peers) == 0 {
			g.Servers = append(g.Servers, unresolved(l.server))
		}
	}
	return g, etag(lines)
}

func (r *Runtime) linesLocked() []line {
	if r.inForce == nil {
		return nil
	}
	return r.inForce.lines
}

// serverState returns one server: by its id, or by that of one of its addresses.
func (r *Runtime) serverState(id string, now time.Time) (ServerState, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.linesLocked()
	var owner *Server   // of all that is looked for
	var wanted []string // ids of peers
	for _, l := range lines {
		for _, p := range l.peers {
			if l.server.id() == id || p.ID == id {
				owner, wanted = l.server, append(wanted, p.ID)
			}
		}
	}
	if i := indexOf(lines, id); i >= 0 && len(lines[i].peers) == 0 {
		return unresolved(lines[i].server), etag(lines), nil
	}
	if owner == nil {
		wanted = []string{id} // removed?
	}
	kept := r.connectionsLocked()
	var found []ServerState
	for _, s := range r.group.Snapshot(now) {
		if slices.Contains(wanted, s.Server.ID) && s.Removed == (owner == nil) {
			p := peerState(s, owner, now)
			p.State.Keepalive = kept[p.Address]
			found = append(found, p)
		}
	}
	switch {
	case len(found) == 0:
		return ServerState{}, "", r.noServer(id)
	case found[0].ID == id || owner == nil:
		return found[0], etag(lines), nil
	}
	return whole(owner, found), etag(lines), nil
}

// whole is a server with several addresses.
func whole(s *Server, peers []ServerState) ServerState {
	out := unresolved(s)
	out.Peers = peers
	for i, p := range peers {
		if i == 0 || p.State.State == "up" {
			out.State.State, out.State.ClosesIn = p.State.State, p.State.ClosesIn
		}
		out.State.Conns += p.State.Conns
		out.State.Picks += p.State.Picks
		out.State.Retries += p.State.Retries
		out.State.Sessions += p.State.Sessions
		out.State.Broken += p.State.Broken
		out.State.Sent += p.State.Sent
		out.State.Received += p.State.Received
		out.State.Failures += p.State.Failures
		out.State.CurrentWeight += p.State.CurrentWeight
		out.State.EffectiveWeight += p.State.EffectiveWeight
		if at := p.State.LastFailure; at != nil && (out.State.LastFailure == nil || at.After(*out.State.LastFailure)) {
			out.State.LastFailure, out.State.LastError = at, p.State.LastError
		}
	}
	return out
}

// unresolved is a server of which no address is known.
func unresolved(s *Server) ServerState {
	base, _ := s.base(s.Address) // checked when it was configured
	out := peerState(peer.State{Server: base}, s, time.Time{})
	out.ID, out.Server, out.Address = s.id(), "", s.Address
	out.State = LiveState{State: "unresolved"}
	return out
}

// peerState is one address; owner is the server that has it, nil if none has.
func peerState(s peer.State, owner *Server, now time.Time) ServerState {
	out := ServerState{
		ID: s.Server.ID, Address: s.Server.Address, Weight: s.Server.Weight, MaxConns: s.Server.MaxConns,
		MaxFails: s.Server.MaxFails, FailTimeout: s.Server.FailTimeout.String(), Route: s.Server.Route,
		Backup: s.Server.Backup, Down: s.Server.Down, Drain: s.Server.Drain,
		State: LiveState{
			State: stateName(s, now), Conns: s.Conns,
			CurrentWeight: s.CurrentWeight, EffectiveWeight: s.EffectiveWeight,
			Fails: s.Fails, DownSince: timePtr(s.DownSince), Picks: s.Picks, Failures: s.Failures,
			LastFailure: timePtr(s.LastFailure), LastError: s.LastError,
			Checks:  checkStates(s.Checks),
			Retries: s.Retries, Selected: timePtr(s.Selected), Reasons: s.Reasons.Map(),
		},
	}
	if stats := s.Stats; stats != nil {
		out.State.Responses = classes(stats)
		out.State.Sessions, out.State.Broken = stats.Sessions.Load(), stats.Broken.Load()
		out.State.Sent, out.State.Received = stats.Sent.Load(), stats.Received.Load()
		out.State.HeaderTime, out.State.ResponseTime = times(stats.Header.Load(), now), times(stats.Response.Load(), now)
	}
	if s.Server.SlowStart > 0 {
		out.SlowStart = s.Server.SlowStart.String()
		out.State.SlowStart = s.SlowStart
	}
	if owner != nil && owner.DrainTimeout != nil {
		out.DrainTimeout = time.Duration(*owner.DrainTimeout).String()
	}
	if s.Server.Probe {
		out.Probe = "tcp"
	}
	if owner != nil {
		if id := owner.id(); id != s.Server.ID {
			out.Server = id
		}
		out.Resolve, out.Service = owner.Resolve, owner.Service
	}
	if left := s.Until.Sub(now); left > 0 {
		out.State.UnhealthyFor = left.Round(time.Millisecond).String()
	}
	if left := s.CloseBy.Sub(now); left > 0 {
		out.State.ClosesIn = left.Round(time.Millisecond).String()
	}
	return out
}

func stateName(s peer.State, now time.Time) string {
	switch {
	case s.Removed:
		return "removed"
	case s.Server.Down, s.Server.Drain && s.Overdue:
		return "down"
	case s.Server.Drain:
		return "draining"
	case s.Until.After(now), len(s.Checks) > 0:
		return "unhealthy"
	case s.Full:
		return "full"
	}
	return "up"
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
