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

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

func init() { caddy.RegisterModule(adminAPI{}) }

// adminAPI serves the live state of all groups on Caddy's admin endpoint:
//
//	GET    /upstream/groups
//	GET    /upstream/groups/{group}
//	GET    /upstream/groups/{group}/servers
//	POST   /upstream/groups/{group}/servers        add a server
//	GET    /upstream/groups/{group}/servers/{id}
//	PATCH  /upstream/groups/{group}/servers/{id}   change a server, [?drain_timeout=<duration>]
//	DELETE /upstream/groups/{group}/servers/{id}   remove a server, [?drain_timeout=<duration>]
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
		return writeJSON(w, map[string]any{"groups": Groups(time.Now())})
	}
	rt := runtimeByName(parts[0])
	if rt == nil {
		return apiError(http.StatusNotFound, "no group %q", parts[0])
	}
	switch {
	case len(parts) == 1:
		if err := allow(w, r, http.MethodGet); err != nil {
			return err
		}
		state, tag := rt.state(time.Now())
		w.Header().Set("ETag", tag)
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
		return a.servers(w, r, rt)
	}
	return a.server(w, r, rt, parts[2])
}

// servers answers for the list of a group's servers.
func (adminAPI) servers(w http.ResponseWriter, r *http.Request, rt *entry) error {
	if err := allow(w, r, http.MethodGet, http.MethodPost); err != nil {
		return err
	}
	if r.Method != http.MethodPost {
		state, tag := rt.state(time.Now())
		w.Header().Set("ETag", tag)
		return writeJSON(w, state.Servers)
	}
	fields, err := readServer(w, r)
	if err != nil {
		return err
	}
	s, err := serverFrom(fields)
	switch {
	case err != nil:
		return apiError(http.StatusBadRequest, "%v", err)
	case s.Address == "":
		return apiError(http.StatusBadRequest, "field \"address\" is missing")
	}
	tag, err := rt.add(r.Context(), r.Header.Get("If-Match"), s)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	w.Header().Set("Location", "/upstream/groups/"+rt.key.name+"/servers/"+url.PathEscape(s.id()))
	w.Header().Set("Content-Type", "application/json")
	lasts := rt.lasts()
	w.WriteHeader(http.StatusCreated)
	return writeJSON(w, changed{s, lasts})
}

// lasting says in each answer how long a change at run time lasts.
const lasting = "until the configuration of this group changes, or Caddy stops"

// changed is the answer to a change.
type changed struct {
	Server *Server `json:"server,omitempty"` // as it is now
	Lasts  string  `json:"lasts"`
}

// server answers for one server.
func (adminAPI) server(w http.ResponseWriter, r *http.Request, rt *entry, id string) error {
	if err := allow(w, r, http.MethodGet, http.MethodPatch, http.MethodDelete); err != nil {
		return err
	}
	match := r.Header.Get("If-Match")
	timeout, err := drainTimeout(r)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodPatch:
		fields, err := readServer(w, r)
		if err != nil {
			return err
		}
		s, tag, err := rt.patch(match, id, fields, timeout)
		if err != nil {
			return err
		}
		w.Header().Set("ETag", tag)
		return writeJSON(w, changed{s, rt.lasts()})
	case http.MethodDelete:
		tag, err := rt.remove(match, id, timeout)
		if err != nil {
			return err
		}
		w.Header().Set("ETag", tag)
		return writeJSON(w, changed{Lasts: rt.lasts()})
	}
	s, tag, err := rt.serverState(id, time.Now())
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	return writeJSON(w, s)
}

// drainTimeout reads the query of a change; nil: it does not say.
func drainTimeout(r *http.Request) (*time.Duration, error) {
	if r.Method != http.MethodPatch && r.Method != http.MethodDelete {
		return nil, nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apiError(http.StatusBadRequest, "query: %v", err)
	}
	for name, values := range query {
		if name != "drain_timeout" || len(values) != 1 {
			return nil, apiError(http.StatusBadRequest, "query %q: expected drain_timeout once, or nothing", name)
		}
		d, err := cfg.ParseDuration(values[0], 0)
		if err != nil {
			return nil, apiError(http.StatusBadRequest, "query \"drain_timeout\": %v", err)
		}
		return &d, nil
	}
	return nil, nil
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

// readServer reads a request's body, which has fields of a server.
func readServer(w http.ResponseWriter, r *http.Request) (map[string]json.RawMessage, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, apiError(http.StatusUnsupportedMediaType, "Content-Type %q: expected application/json", r.Header.Get("Content-Type"))
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apiError(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
	case err != nil:
		return nil, apiError(http.StatusBadRequest, "reading the body: %v", err)
	}
	fields, err := serverFields(raw)
	if err != nil {
		return nil, apiError(http.StatusBadRequest, "%v", err)
	}
	return fields, nil
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
