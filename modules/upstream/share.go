// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Several Caddys may share the stored servers of a group. What is stored leads:
// before a change, and every few seconds, a Caddy takes over what another has
// stored for the same configured list. Nothing is locked, for the locks of Caddy's
// file storage outlive a process that is killed; of two changes at the same
// moment through two Caddys, the later one to be stored counts.

// shareInterval is how often a group with state looks at what is stored.
const shareInterval = 5 * time.Second

// keeper is where the servers of the running configuration are stored; nil:
// nowhere.
func (r *Runtime) keeper() *keeper {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil || len(r.stack) == 0 {
		return nil
	}
	return r.inForce.keeper
}

// share begins a change: it takes over what another Caddy has stored. The function
// that it returns ends it, and stores what has come of it.
func (r *Runtime) share() (end func()) {
	k := r.keeper()
	if k == nil {
		return func() {}
	}
	r.saving.Lock()
	r.takeOver(context.Background(), k)
	return func() {
		defer r.saving.Unlock()
		r.save(k)
	}
}

// save stores the servers, if they are not what is stored. The lock saving is held.
func (r *Runtime) save(k *keeper) {
	raw, err := r.inForceRaw(k)
	switch {
	case err != nil || raw == nil:
		return
	case r.saveErr == nil && bytes.Equal(raw, r.saved):
		return
	default:
		err = k.store(raw)
	}
	r.saved, r.saveErr = raw, err
	if err != nil {
		r.logger.Load().Error("storing the servers failed: they are lost when Caddy stops", zap.String("group", k.group), zap.Error(err))
	}
}

// inForceRaw is what has to be stored of the servers in force; nil: k does not keep
// them any more.
func (r *Runtime) inForceRaw(k *keeper) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil || r.inForce.keeper != k {
		return nil, nil
	}
	return k.encode(r.inForce.lines)
}

// takeOver brings what is stored into force, if another Caddy has stored it, for
// the same list. The lock saving is held.
func (r *Runtime) takeOver(ctx context.Context, k *keeper) {
	if r.saveErr != nil {
		return // what is in force is newer
	}
	raw, err := k.load(ctx)
	if err == nil && (raw == nil || bytes.Equal(raw, r.saved)) {
		return
	}
	var servers []*Server
	if err == nil {
		if mine, e := r.inForceRaw(k); e == nil && bytes.Equal(raw, mine) {
			r.saved = raw
			return
		}
		servers, err = k.decode(raw)
	}
	if err == nil && servers == nil {
		return
	}
	if err == nil {
		err = r.adopt(ctx, k, servers)
	}
	if err == nil {
		r.saved, r.unusable = raw, nil
		return
	}
	if ctx.Err() == nil && (r.unusable == nil || !bytes.Equal(raw, r.unusable)) { // once
		r.unusable = append([]byte{}, raw...)
		r.logger.Load().Warn(storedUnused, zap.String("group", k.group), zap.String("key", k.key()), zap.Error(err))
	}
}

// adopt makes these servers, which another Caddy has stored, those of the group.
func (r *Runtime) adopt(ctx context.Context, k *keeper, servers []*Server) error {
	lines, err := resolveLines(ctx, servers, r) // may look names up: without the lock
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil || r.inForce.keeper != k {
		return nil
	}
	if err := r.allowedLocked(lines); err != nil {
		return err
	}
	if err := r.replaceLocked(r.resolvedLocked(r.inForce.with(lines))); err != nil {
		return err
	}
	r.logger.Load().Info("the servers are those that another Caddy has stored", zap.String("group", k.group), zap.Int("servers", len(lines)))
	return nil
}

// allowedLocked checks a list of servers against the rest of the configuration.
// The error is a *changeError.
func (r *Runtime) allowedLocked(lines []line) error {
	if err := r.inForce.checkRoutes(lines); err != nil {
		return &changeError{http.StatusBadRequest, err}
	}
	if r.inForce.resolver == nil {
		if err := needNoResolver(lines); err != nil {
			return &changeError{http.StatusBadRequest, err}
		}
	}
	if r.portless.Load() > 0 {
		if err := needPorts(lines); err != nil {
			return &changeError{http.StatusConflict, err}
		}
	}
	return nil
}

// followStoredLocked looks at what is stored again and again while a configuration
// with state runs.
func (r *Runtime) followStoredLocked() {
	want := len(r.stack) > 0 && r.inForce != nil && r.inForce.keeper != nil
	switch {
	case want && r.unfollow == nil:
		var ctx context.Context
		ctx, r.unfollow = context.WithCancel(context.Background())
		go r.followStored(ctx)
	case !want && r.unfollow != nil:
		r.unfollow()
		r.unfollow = nil
	}
}

func (r *Runtime) followStored(ctx context.Context) {
	tick := time.NewTicker(shareInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if k := r.keeper(); k != nil {
			r.saving.Lock()
			r.takeOver(ctx, k)
			r.saving.Unlock()
		}
	}
}
