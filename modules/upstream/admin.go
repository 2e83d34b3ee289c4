// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

func init() { caddy.RegisterModule(adminAPI{}) }

// adminAPI serves the live state of all groups on Caddy's admin endpoint:
//
//	GET /upstream/groups
//	GET /upstream/groups/{group}
//	GET /upstream/groups/{group}/servers
//	GET /upstream/groups/{group}/servers/{id}
//
// Admin routers are provisioned before the apps and may outlive a failed reload,
// so that nothing is kept here: each request looks at what is running.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.upstream", New: func() caddy.Module { return adminAPI{} }}
}

// Routes implements caddy.AdminRouter.
func (a adminAPI) Routes() []caddy.AdminRoute {
	handler := caddy.AdminHandlerFunc(a.serve)
	return []caddy.AdminRoute{
		{Pattern: "/upstream/groups", Handler: handler},
		{Pattern: "/upstream/groups/", Handler: handler},
	}
}

// GroupState is a group as the API shows it.
type GroupState struct {
	Name string `json:"name"`
	// Static is true for the list of addresses of a handler, which has no name
	// of its own in the configuration.
	Static  bool          `json:"static,omitempty"`
	Servers []ServerState `json:"servers"`
}

// ServerState is a server as the API shows it: its configuration, and state.
type ServerState struct {
	ID          string `json:"id"`
	Address     string `json:"address"`
	Weight      int    `json:"weight"`
	MaxConns    int    `json:"max_conns"`
	MaxFails    int    `json:"max_fails"`
	FailTimeout string `json:"fail_timeout"`
	Backup      bool   `json:"backup,omitempty"`
	Down        bool   `json:"down,omitempty"`
	Drain       bool   `json:"drain,omitempty"`

	State LiveState `json:"state"`
}

// LiveState is what changes by itself.
type LiveState struct {
	// State is up, down, draining, unhealthy, full or removed.
	State           string `json:"state"`
	Conns           int64  `json:"conns"`
	CurrentWeight   int64  `json:"current_weight"`
	EffectiveWeight int64  `json:"effective_weight"`
	Fails           int    `json:"fails"`
	// UnhealthyFor is the time left until an unhealthy server is tried again.
	UnhealthyFor string     `json:"unhealthy_for,omitempty"`
	DownSince    *time.Time `json:"down_since,omitempty"`
	Picks        uint64     `json:"picks"`
	Failures     uint64     `json:"failures"`
	LastFailure  *time.Time `json:"last_failure,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
}

func (adminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return apiError(http.StatusMethodNotAllowed, "method %s is not supported here: expected GET", r.Method)
	}
	parts, err := pathParts(r)
	if err != nil {
		return apiError(http.StatusBadRequest, "path: %v", err)
	}
	groups := groupStates(time.Now())
	if len(parts) == 0 {
		return writeJSON(w, map[string]any{"groups": groups})
	}
	i := slices.IndexFunc(groups, func(g GroupState) bool { return g.Name == parts[0] })
	switch {
	case i < 0:
		return apiError(http.StatusNotFound, "no group %q", parts[0])
	case len(parts) == 1:
		return writeJSON(w, groups[i])
	case parts[1] != "servers" || len(parts) > 3:
		return apiError(http.StatusNotFound, "no such resource: expected /upstream/groups/{group}/servers/{id}")
	case len(parts) == 2:
		return writeJSON(w, groups[i].Servers)
	}
	j := slices.IndexFunc(groups[i].Servers, func(s ServerState) bool { return s.ID == parts[2] })
	if j < 0 {
		return apiError(http.StatusNotFound, "no server %q in group %q", parts[2], parts[0])
	}
	return writeJSON(w, groups[i].Servers[j])
}

// pathParts returns the decoded segments after /upstream/groups.
func pathParts(r *http.Request) ([]string, error) {
	rest := strings.Trim(strings.TrimPrefix(r.URL.EscapedPath(), "/upstream/groups"), "/")
	if rest == "" {
		return nil, nil
	}
	parts := strings.Split(rest, "/")
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// groupStates returns all groups in use, by name.
func groupStates(now time.Time) []GroupState {
	out := []GroupState{}
	runtimes.Range(func(_, v any) bool {
		r := v.(*Runtime)
		g := GroupState{Name: r.key.name, Static: r.key.list != "", Servers: []ServerState{}}
		for _, s := range r.group.Snapshot() {
			g.Servers = append(g.Servers, serverState(s, now))
		}
		out = append(out, g)
		return true
	})
	slices.SortFunc(out, func(a, b GroupState) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func serverState(s peer.State, now time.Time) ServerState {
	out := ServerState{
		ID: s.Server.ID, Address: s.Server.Address, Weight: s.Server.Weight, MaxConns: s.Server.MaxConns,
		MaxFails: s.Server.MaxFails, FailTimeout: s.Server.FailTimeout.String(),
		Backup: s.Server.Backup, Down: s.Server.Down, Drain: s.Server.Drain,
		State: LiveState{
			State: stateName(s, now), Conns: s.Conns,
			CurrentWeight: s.CurrentWeight, EffectiveWeight: s.EffectiveWeight,
			Fails: s.Fails, DownSince: timePtr(s.DownSince), Picks: s.Picks, Failures: s.Failures,
			LastFailure: timePtr(s.LastFailure), LastError: s.LastError,
		},
	}
	if left := s.Until.Sub(now); left > 0 {
		out.State.UnhealthyFor = left.Round(time.Millisecond).String()
	}
	return out
}

func stateName(s peer.State, now time.Time) string {
	switch {
	case s.Removed:
		return "removed"
	case s.Server.Down:
		return "down"
	case s.Server.Drain:
		return "draining"
	case s.Until.After(now):
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

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func apiError(status int, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return caddy.APIError{HTTPStatus: status, Err: err, Message: err.Error()}
}

// Interface guards
var _ caddy.AdminRouter = adminAPI{}
