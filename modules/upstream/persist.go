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

// load returns the servers that were stored for the list as it is configured.
// Nil without an error: none were, or for another list.
func (k *keeper) load(ctx context.Context) ([]*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	raw, err := k.storage.Load(ctx, k.key())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var state kept
	switch {
	case err != nil:
		return nil, err
	case json.Unmarshal(raw, &state) != nil:
		return nil, errors.New("it is not JSON, or not of this kind")
	case state.Version != keptVersion:
		return nil, fmt.Errorf("it has version %d: expected %d", state.Version, keptVersion)
	case state.Group != k.group:
		return nil, fmt.Errorf("it is of group %q", state.Group)
	case state.Digest != k.digest:
		return nil, nil // the configuration has changed, and wins
	}
	return state.Servers, nil
}

// restore replaces the configured servers of the group with those that are
// stored for them. What cannot be used is reported and left.
func (g *Group) restore(ctx caddy.Context) error {
	var err error
	if g.keeper, err = newKeeper(ctx, g.name, g.Servers); err != nil {
		return err
	}
	servers, err := g.keeper.load(ctx)
	var lines []line
	if err == nil && servers != nil {
		lines, err = resolveLines(ctx, servers, g.runtime)
	}
	switch {
	case err != nil:
		ctx.Logger(&App{}).Warn("the stored servers are not used, the configured ones are",
			zap.String("group", g.name), zap.String("key", g.keeper.key()), zap.Error(err))
	case lines != nil:
		g.lines = lines
	}
	return nil
}

// save stores the servers of the group, if it has `state` and they are not what
// was stored last. Changes that come while one is stored are stored together.
func (r *Runtime) save() error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	if r.inForce == nil || r.inForce.keeper == nil || len(r.stack) == 0 {
		r.mu.Unlock()
		return nil
	}
	k := r.inForce.keeper
	state := kept{Version: keptVersion, Group: k.group, Digest: k.digest}
	for _, l := range r.inForce.lines {
		state.Servers = append(state.Servers, l.server)
	}
	r.mu.Unlock()
	raw, err := json.Marshal(state)
	if err != nil || string(raw) == r.saved {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := k.storage.Store(ctx, k.key(), raw); err != nil {
		r.saved = ""
		r.logger.Load().Error("storing the servers failed: they are lost when Caddy stops", zap.String("group", k.group), zap.Error(err))
		return err
	}
	r.saved = string(raw)
	return nil
}

// lasts says how long a change at run time lasts, after saving it.
func (r *Runtime) lasts() string {
	err := r.save()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.inForce == nil || r.inForce.keeper == nil:
		return lasting
	case err != nil:
		return lasting + ": storing it failed"
	}
	return "until the list of servers in the configuration of this group changes; it is in Caddy's storage"
}
