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
	"io/fs"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// storeTimeout bounds what is read from and written to Caddy's storage.
const storeTimeout = 5 * time.Second

// keeper keeps the servers of a group with `state` in Caddy's storage, which
// writes a value whole or not at all.
type keeper struct {
	storage certmagic.Storage
	group   string
	digest  string // of the servers as configured
}

// kept is what is stored.
type kept struct {
	Version int       `json:"version"`
	Group   string    `json:"group"`
	Digest  string    `json:"digest"`
	Servers []*Server `json:"servers"`
}

const keptVersion = 1

func newKeeper(ctx caddy.Context, group string, configured []*Server) (*keeper, error) {
	raw, err := json.Marshal(configured)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return &keeper{storage: ctx.Storage(), group: group, digest: hex.EncodeToString(sum[:])}, nil
}

func (k *keeper) key() string { return "upstream/state/" + k.group + ".json" }

// load returns what is stored; nil without an error: nothing is.
func (k *keeper) load(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	raw, err := k.storage.Load(ctx, k.key())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

func (k *keeper) store(raw []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return k.storage.Store(ctx, k.key(), raw)
}

// decode returns the servers in raw if they are those of the list as it is
// configured. Nil without an error: they are of another list.
func (k *keeper) decode(raw []byte) ([]*Server, error) {
	var state kept
	switch {
	case json.Unmarshal(raw, &state) != nil:
		return nil, errors.New("it is not JSON, or not of this kind")
	case state.Version != keptVersion:
		return nil, fmt.Errorf("it has version %d: expected %d", state.Version, keptVersion)
	case state.Group != k.group:
		return nil, fmt.Errorf("it is of group %q", state.Group)
	case state.Digest != k.digest:
		return nil, nil // the configuration has changed, and wins
	}
	if state.Servers == nil {
		return nil, errors.New("it has no servers")
	}
	return state.Servers, nil
}

// encode is what is to be stored of these lines.
func (k *keeper) encode(lines []line) ([]byte, error) {
	state := kept{Version: keptVersion, Group: k.group, Digest: k.digest}
	for _, l := range lines {
		state.Servers = append(state.Servers, l.server)
	}
	return json.Marshal(state)
}

// restore replaces the configured servers of the group with those that are
// stored for them. What cannot be used is reported and left.
func (g *Group) restore(ctx caddy.Context) error {
	var err error
	if g.keeper, err = newKeeper(ctx, g.name, g.Servers); err != nil {
		return err
	}
	var servers []*Server
	raw, err := g.keeper.load(ctx)
	if err == nil && raw != nil {
		servers, err = g.keeper.decode(raw)
	}
	var lines []line
	if err == nil && servers != nil {
		lines, err = g.readStored(ctx, servers)
	}
	switch {
	case err != nil:
		g.runtime.saving.Lock()
		g.runtime.unusable = append([]byte{}, raw...) // it has been reported
		g.runtime.saving.Unlock()
		ctx.Logger(&App{}).Warn(storedUnused,
			zap.String("group", g.name), zap.String("key", g.keeper.key()), zap.Error(err))
	case lines != nil:
		g.configured, g.lines = g.lines, lines
	}
	return nil
}

// readStored reads servers that were stored, by another build perhaps.
func (g *Group) readStored(ctx context.Context, servers []*Server) ([]line, error) {
	lines, err := resolveLines(ctx, servers, g.runtime)
	if err != nil || g.resolver != nil {
		return lines, err
	}
	return lines, needNoResolver(lines)
}

func needNoResolver(lines []line) error {
	if i := slices.IndexFunc(lines, func(l line) bool { return l.server.Resolve }); i >= 0 {
		return errNoResolver(lines[i].server)
	}
	return nil
}

// errNoResolver refuses a server that is to be followed. A group has a resolver
// whenever its build has one.
func errNoResolver(s *Server) error {
	return fmt.Errorf("server %s: resolve: no resolver is in this build", s.id())
}

// forgetStored puts the configured servers in the place of stored ones that cannot
// be used with the rest of the configuration.
func (g *Group) forgetStored(ctx caddy.Context, why error) error {
	ctx.Logger(&App{}).Warn(storedUnused, zap.String("group", g.name), zap.String("key", g.keeper.key()), zap.Error(why))
	g.lines = g.configured
	return g.settleDigest()
}

const storedUnused = "the stored servers are not used, the configured ones are"

// lasts says how long a change at run time lasts.
func (r *Runtime) lasts() string {
	k := r.keeper()
	r.saving.Lock()
	defer r.saving.Unlock()
	switch {
	case k == nil:
		return lasting
	case r.saveErr != nil:
		return lasting + ": storing it failed"
	}
	return "until the list of servers in the configuration of this group changes; it is in Caddy's storage"
}
