// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// changeError is why a change at run time was refused, with the status that the
// API answers.
type changeError struct {
	status int
	err    error
}

func (e *changeError) Error() string { return e.err.Error() }

func refuse(status int, format string, args ...any) error {
	return &changeError{status, fmt.Errorf(format, args...)}
}

// id is the name of the server in its group.
func (s *Server) id() string {
	if s.ID != "" {
		return s.ID
	}
	return s.Address
}

// etag stands for the configuration of a list of servers.
func etag(lines []line) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, l := range lines {
		_ = enc.Encode(l.server)
	}
	return `"` + hex.EncodeToString(h.Sum(nil)[:8]) + `"`
}

// change edits the servers of a running group, all or nothing. edit gets a copy
// of the list. match, if not empty, is the If-Match condition. The new etag is
// returned. Changes last until a configuration of the group that differs from
// the one in force is started.
func (r *Runtime) change(match string, edit func([]line) ([]line, error)) (string, error) {
	if r.key.list != "" {
		return "", refuse(http.StatusConflict, "group %s is the list of addresses of a handler: change the configuration instead", r.key.name)
	}
	defer r.share()()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil {
		return "", refuse(http.StatusConflict, "group %s is not running", r.key.name)
	}
	if match != "" {
		if tag := etag(r.inForce.lines); !matches(match, tag) {
			return "", refuse(http.StatusPreconditionFailed, "If-Match %s: the servers have changed, their ETag is %s", match, tag)
		}
	}
	lines, err := edit(slices.Clone(r.inForce.lines))
	if err != nil {
		return "", err
	}
	if err := checkLines(lines); err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errNoPrimary) {
			status = http.StatusConflict
		}
		return "", &changeError{status, err}
	}
	if err := r.allowedLocked(lines); err != nil {
		return "", err
	}
	if err := r.replaceLocked(r.inForce.with(lines)); err != nil {
		return "", &changeError{http.StatusBadRequest, err}
	}
	return etag(lines), nil
}

// matches reports whether an If-Match header names tag. A weak tag never does.
func matches(header, tag string) bool {
	for m := range strings.SplitSeq(header, ",") {
		if m = strings.TrimSpace(m); m == "*" || m == tag {
			return true
		}
	}
	return false
}

// unknown is a live state that knows no host name.
type unknown struct{}

func (unknown) addressesOf(string) []string { return nil }
func (unknown) keeps(string, error)         {}

// add appends a server.
func (r *Runtime) add(ctx context.Context, match string, s *Server) (string, error) {
	peers, err := s.peers(ctx, unknown{}) // may look names up: without the lock
	if err != nil {
		return "", &changeError{http.StatusBadRequest, err}
	}
	return r.change(match, func(lines []line) ([]line, error) {
		switch {
		case indexOf(lines, s.id()) >= 0:
			return nil, refuse(http.StatusConflict, "server %s is there already", s.id())
		case s.Resolve && r.inForce.resolver == nil:
			return nil, &changeError{http.StatusBadRequest, errNoResolver(s)}
		}
		return append(lines, line{server: s, peers: peers}), nil
	})
}

// remove takes a server out; what it is doing it finishes, within timeout if that
// is not nil, else within its own drain_timeout.
func (r *Runtime) remove(match, id string, timeout *time.Duration) (string, error) {
	var removed []*Peer
	tag, err := r.change(match, func(lines []line) ([]line, error) {
		i, err := r.find(lines, id)
		if err != nil {
			return nil, err
		}
		removed = r.peersOf(lines[i])
		return slices.Delete(lines, i, i+1), nil
	})
	if err == nil {
		r.hasten(removed, timeout)
	}
	return tag, err
}

// peersOf returns the engine's peers of a line in force.
func (r *Runtime) peersOf(l line) (out []*Peer) {
	for _, p := range r.group.Peers() {
		if slices.ContainsFunc(l.peers, func(s peer.Server) bool { return s.ID == p.ID() }) {
			out = append(out, p)
		}
	}
	return out
}

// find returns the place of a server, or says that there is none.
func (r *Runtime) find(lines []line, id string) (int, error) {
	if i := indexOf(lines, id); i >= 0 {
		return i, nil
	}
	for _, l := range lines {
		if slices.ContainsFunc(l.peers, func(p peer.Server) bool { return p.ID == id }) {
			return -1, refuse(http.StatusNotFound, "%q is one address of server %q of group %q: change that one", id, l.server.id(), r.key.name)
		}
	}
	return -1, r.noServer(id)
}

func (r *Runtime) noServer(id string) error {
	return refuse(http.StatusNotFound, "no server %q in group %q", id, r.key.name)
}

// fixed are the fields of a server that a change cannot touch, with the reason.
var fixed = map[string]string{
	"id":      "add a server with the new id and remove this one",
	"address": "add a server with the new address and remove this one",
	"resolve": "add a new server and remove this one",
	"service": "add a new server and remove this one",
}

// patch changes fields of a server; null puts a field back to its default. timeout
// is for a change that takes the server out, as that of remove.
func (r *Runtime) patch(match, id string, fields map[string]json.RawMessage, timeout *time.Duration) (s *Server, tag string, err error) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if why, ok := fixed[name]; ok {
			return nil, "", refuse(http.StatusBadRequest, "field %q cannot be changed: %s", name, why)
		}
	}
	var peers []*Peer
	tag, err = r.change(match, func(lines []line) ([]line, error) {
		i, err := r.find(lines, id)
		if err != nil {
			return nil, err
		}
		s, err = lines[i].server.merge(fields)
		switch {
		case err != nil:
			return nil, &changeError{http.StatusBadRequest, err}
		case timeout != nil && !s.Drain && !s.Down:
			return nil, refuse(http.StatusBadRequest, "query \"drain_timeout\" goes with a change that drains the server or sets it down")
		}
		peers = r.peersOf(lines[i])
		servers, err := s.again(&lines[i])
		if err != nil {
			return nil, &changeError{http.StatusBadRequest, err}
		}
		lines[i] = line{s, servers, lines[i].found}
		return lines, nil
	})
	if err == nil {
		r.hasten(peers, timeout)
	}
	return s, tag, err
}

// again returns the peers of l with the parameters of s, a line of the same
// address.
func (s *Server) again(l *line) ([]peer.Server, error) {
	if s.Resolve {
		return s.located(l.found)
	}
	base, err := s.base(lineText(s))
	if err != nil {
		return nil, err
	}
	peers := slices.Clone(l.peers)
	for i := range peers {
		was := peers[i]
		peers[i] = base
		peers[i].ID, peers[i].Address, peers[i].Name = was.ID, was.Address, was.Name
	}
	return peers, nil
}

// merge returns s with fields set, as if they had been configured.
func (s *Server) merge(fields map[string]json.RawMessage) (*Server, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for name, value := range fields {
		if string(value) == "null" {
			delete(all, name)
			continue
		}
		all[name] = value
	}
	return serverFrom(all)
}

func indexOf(lines []line, id string) int {
	return slices.IndexFunc(lines, func(l line) bool { return l.server.id() == id })
}

// Patch changes fields of a server of a running group; null puts a field back
// to its default. StatusOf tells of an error what HTTP calls it.
func Patch(group, server string, fields map[string]json.RawMessage) error {
	r := runtimeByName(group)
	if r == nil {
		return refuse(http.StatusNotFound, "no group %q", group)
	}
	_, _, err := r.patch("", server, fields, nil)
	return err
}

// StatusOf returns the HTTP status for a change that was refused with err.
func StatusOf(err error) int {
	if refused, ok := errors.AsType[*changeError](err); ok {
		return refused.status
	}
	return http.StatusInternalServerError
}
