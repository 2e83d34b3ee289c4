// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
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
//	GET    /upstream/groups
//	GET    /upstream/groups/{group}
//	GET    /upstream/groups/{group}/servers
//	POST   /upstream/groups/{group}/servers        add a server
//	GET    /upstream/groups/{group}/servers/{id}
//	PATCH  /upstream/groups/{group}/servers/{id}   change a server
//	DELETE /upstream/groups/{group}/servers/{id}   remove a server
//	POST   /upstream/groups/{group}/reset          counters
//
// Admin routers are provisioned before the apps and may outlive a failed reload,
// so that nothing is kept here: each request looks at what is running.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.upstream", New: func() caddy.Module { return new(adminAPI) }}
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

func (a adminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	parts, err := pathParts(r)
	if err != nil {
		return apiError(http.StatusBadRequest, "path: %v", err)
	}
	err = a.route(w, r, parts)
	var refused *changeError
	if errors.As(err, &refused) {
		return apiError(refused.status, "%w", refused.err)
	}
	return err
}

// route answers one request; parts is the path after /upstream/groups.
func (a adminAPI) route(w http.ResponseWriter, r *http.Request, parts []string) error {
	if len(parts) == 0 {
		if err := allow(w, r, http.MethodGet); err != nil {
			return err
		}
		return writeJSON(w, map[string]any{"groups": groupStates(time.Now())})
	}
	rt := runtimeByName(parts[0])
	if rt == nil {
		return apiError(http.StatusNotFound, "no group %q", parts[0])
	}
	state, tag := rt.state(time.Now())
	w.Header().Set("ETag", tag)
	switch {
	case len(parts) == 1:
		if err := allow(w, r, http.MethodGet); err != nil {
			return err
		}
		return writeJSON(w, state)
	case len(parts) == 2 && parts[1] == "reset":
		if err := allow(w, r, http.MethodPost); err != nil {
			return err
		}
		rt.group.ResetCounters()
		w.WriteHeader(http.StatusNoContent)
		return nil
	case parts[1] != "servers" || len(parts) > 3:
		return apiError(http.StatusNotFound, "no such resource: expected /upstream/groups/{group}/servers/{id}")
	case len(parts) == 2:
		return a.servers(w, r, rt, state)
	}
	return a.server(w, r, rt, state, parts[2])
}

// servers answers for the list of a group's servers.
func (adminAPI) servers(w http.ResponseWriter, r *http.Request, rt *Runtime, state GroupState) error {
	if err := allow(w, r, http.MethodGet, http.MethodPost); err != nil {
		return err
	}
	if r.Method != http.MethodPost {
		return writeJSON(w, state.Servers)
	}
	s := new(Server)
	if err := readJSON(w, r, s); err != nil {
		return err
	}
	if s.Address == "" {
		return apiError(http.StatusBadRequest, "field \"address\" is missing")
	}
	tag, err := rt.add(r.Context(), r.Header.Get("If-Match"), s)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	w.Header().Set("Location", "/upstream/groups/"+rt.key.name+"/servers/"+url.PathEscape(s.id()))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return writeJSON(w, changed{s, lasting})
}

// lasting says in each answer how long a change at run time lasts.
const lasting = "until the configuration of this group changes, or Caddy stops"

// changed is the answer to a change.
type changed struct {
	Server *Server `json:"server"`
	Lasts  string  `json:"lasts"`
}

// server answers for one server.
func (adminAPI) server(w http.ResponseWriter, r *http.Request, rt *Runtime, state GroupState, id string) error {
	if err := allow(w, r, http.MethodGet, http.MethodPatch, http.MethodDelete); err != nil {
		return err
	}
	match := r.Header.Get("If-Match")
	switch r.Method {
	case http.MethodPatch:
		fields := map[string]json.RawMessage{}
		if err := readJSON(w, r, &fields); err != nil {
			return err
		}
		tag, err := rt.patch(match, id, fields)
		if err != nil {
			return err
		}
		w.Header().Set("ETag", tag)
		return writeJSON(w, changed{rt.serverByID(id), lasting})
	case http.MethodDelete:
		if err := rt.remove(match, id); err != nil {
			return err
		}
		w.Header().Del("ETag") // that of the list before
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	j := slices.IndexFunc(state.Servers, func(s ServerState) bool { return s.ID == id })
	if j < 0 {
		return apiError(http.StatusNotFound, "no server %q in group %q", id, rt.key.name)
	}
	return writeJSON(w, state.Servers[j])
}

// allow refuses methods that a resource does not have. HEAD goes with GET.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) error {
	if slices.Contains(methods, r.Method) || r.Method == http.MethodHead && methods[0] == http.MethodGet {
		return nil
	}
	list := strings.Join(methods, ", ")
	w.Header().Set("Allow", list)
	return apiError(http.StatusMethodNotAllowed, "method %s is not supported here: expected %s", r.Method, list)
}

// maxBody is the largest request body of the API, in bytes.
const maxBody = 1 << 20

func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return apiError(http.StatusUnsupportedMediaType, "Content-Type %q: expected application/json", r.Header.Get("Content-Type"))
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return apiError(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
	case err != nil:
		return apiError(http.StatusBadRequest, "reading the body: %v", err)
	}
	if err := strictJSON(raw, v); err != nil {
		return apiError(http.StatusBadRequest, "%v", err)
	}
	return nil
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
		state, _ := v.(*Runtime).state(now)
		out = append(out, state)
		return true
	})
	slices.SortFunc(out, func(a, b GroupState) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// runtimeByName returns the state of a group, nil if it is not in use. A named
// group goes before a list of addresses of the same name.
func runtimeByName(name string) *Runtime {
	var found *Runtime
	runtimes.Range(func(k, v any) bool {
		if key := k.(runtimeKey); key.name == name && (found == nil || key.list == "") {
			found = v.(*Runtime)
		}
		return true
	})
	return found
}

// state returns what the API shows of the group, and the ETag of its servers.
func (r *Runtime) state(now time.Time) (GroupState, string) {
	g := GroupState{Name: r.key.name, Static: r.key.list != "", Servers: []ServerState{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.group.Snapshot() {
		g.Servers = append(g.Servers, serverState(s, now))
	}
	if r.inForce == nil {
		return g, etag(nil)
	}
	return g, etag(r.inForce.lines)
}

// serverByID returns the configuration of a server, nil if there is none.
func (r *Runtime) serverByID(id string) *Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := indexOf(r.inForce.lines, id); i >= 0 {
		return r.inForce.lines[i].server
	}
	return nil
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
