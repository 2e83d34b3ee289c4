// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// The events that groups emit through Caddy's events app, with the module
// upstream as their origin. All have `group`; the first two `server`, `address`
// and `reason`, which is what is wrong or empty.
const (
	// eventDown has also `check`, the name of the active check that the server
	// fails, or `fails` and `fail_timeout`, if it was failing requests.
	eventDown = "upstream.server_down"
	// eventUp has also `down_for`.
	eventUp = "upstream.server_up"
	// eventEmpty says that no server of the group can be used. It comes once,
	// and again when one could be used in between. It has also `servers`, their
	// number.
	eventEmpty = "upstream.group_empty"
)

// eventBacklog is how many events may wait for their handlers.
const eventBacklog = 1024

// emitter hands the events of one configuration to its handlers, one after the
// other, off the way of the requests that cause them.
type emitter struct {
	app    *caddyevents.App
	ctx    caddy.Context
	logger *zap.Logger
	queue  chan emitted
	cancel context.CancelFunc
	ended  chan struct{}
}

type emitted struct {
	name string
	data map[string]any
}

// loadEvents gets Caddy's events app for the configuration's groups.
func (a *App) loadEvents(ctx caddy.Context) error {
	app, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	a.events = &emitter{
		app: app.(*caddyevents.App), ctx: ctx, logger: a.logger,
		queue: make(chan emitted, eventBacklog), ended: make(chan struct{}),
	}
	return nil
}

// start begins to emit.
func (e *emitter) start() {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	go e.run(ctx)
}

// stop ends the goroutine once the handler that it may be in has returned.
func (e *emitter) stop() {
	if e != nil && e.cancel != nil {
		e.cancel()
	}
}

func (e *emitter) run(ctx context.Context) {
	defer close(e.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-e.queue:
			e.app.Emit(e.ctx, x.name, x.data)
		}
	}
}

// emit queues an event, if anybody can see it. It does not wait.
func (e *emitter) emit(name string, data map[string]any) {
	if !e.app.ShouldEmit(name) {
		return
	}
	select {
	case e.queue <- emitted{name, data}:
	default:
		e.logger.Error("too many events wait for their handlers: one is lost", zap.String("event", name), zap.Any("data", data))
	}
}

// emitTo makes the group emit through e until emitNoMore; the latest goes first.
func (r *Runtime) emitTo(e *emitter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emitters = append(r.emitters, e)
	r.emitter.Store(e)
}

func (r *Runtime) emitNoMore(e *emitter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emitters = slices.DeleteFunc(r.emitters, func(x *emitter) bool { return x == e })
	var last *emitter
	if n := len(r.emitters); n > 0 {
		last = r.emitters[n-1]
	}
	r.emitter.Store(last)
}

// announce emits what has become of a peer. It is called without the locks of
// the group, and must not take that of the Runtime.
func (r *Runtime) announce(e peer.Event) {
	out := r.emitter.Load()
	if out == nil {
		return
	}
	s := e.Peer.Server()
	data := map[string]any{"group": r.key.name, "server": s.ID, "address": s.Address, "reason": ""}
	if e.Cause != nil {
		data["reason"] = e.Cause.Error()
	}
	switch e.Kind {
	case peer.ServerDown:
		data["fails"], data["fail_timeout"] = e.Fails, s.FailTimeout.String()
		out.emit(eventDown, data)
	case peer.ServerUnhealthy:
		data["check"] = e.Check
		out.emit(eventDown, data)
	case peer.ServerUp, peer.ServerHealthy:
		data["down_for"] = e.DownFor.Round(time.Millisecond).String()
		out.emit(eventUp, data)
	}
	r.checkEmpty()
}

// checkEmpty emits that the group has no server left, once.
func (r *Runtime) checkEmpty() {
	out := r.emitter.Load()
	if out == nil {
		return
	}
	status := r.group.Status()
	if empty := status.Up == 0 && status.Members > 0; r.empty.Swap(empty) != empty && empty {
		out.emit(eventEmpty, map[string]any{"group": r.key.name, "servers": status.Members})
	}
}
