// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

func TestListsOfOneNameAndServersOfOneAddressAreSeriesOfTheirOwn(t *testing.T) {
	for i := range 12 {
		r, err := acquire(runtimeKey{name: "same", list: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.release() })
		g := testGeneration("a", "b")
		for j := range g.lines { // one server with one address twice, as SRV records may say
			g.lines[j].server.ID = "x"
			g.lines[j].peers[0].Address = "10.0.0.1:80"
		}
		if err := r.push(g.with(g.lines), zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		var s peer.Session
		s.Begin(r.group, peer.SessionOptions{})
		l, err := s.Next(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // two checks of one name
			c := r.group.AddCheck(peer.CheckOptions{Name: "http /"}, time.Now())
			c.Fail(l.Peer(), errors.New("status 500"), time.Now())
			defer c.End(time.Now())
		}
		l.Peer().Stats.Answered(204)
		peer.Record(&l.Peer().Stats.Response, time.Millisecond, time.Now())
		l.Done(peer.Failed, time.Now())
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "caddy_upstream_server_tries_total" && len(f.GetMetric()) != 24 {
			t.Errorf("%d series of tries, want 24", len(f.GetMetric()))
		}
		if f.GetName() == "caddy_upstream_server_failed_check" && len(f.GetMetric()) != 12 {
			t.Errorf("%d series of failed checks, want 12", len(f.GetMetric()))
		}
	}
}

// TestEventsWaitForNobodyAndEndWithTheirConfiguration has a handler that hangs.
func TestEventsWaitForNobodyAndEndWithTheirConfiguration(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	app := new(caddyevents.App)
	if err := app.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	release, handled := make(chan struct{}), make(chan string, 10)
	if err := app.On(eventDown, handlerFunc(func(e caddy.Event) {
		<-release
		handled <- fmt.Sprint(e.Data["server"])
	})); err != nil {
		t.Fatal(err)
	}
	e := &emitter{app: app, ctx: ctx, logger: zap.NewNop(), queue: make(chan emitted, 4), ended: make(chan struct{})}
	e.start()
	for i := range 20 { // more than fit: the rest is lost, not waited for
		e.emit(eventDown, map[string]any{"server": i})
	}
	e.emit(eventUp, nil) // nobody wants it
	close(release)
	if got := <-handled; got != "0" {
		t.Errorf("the first event is of server %s, want 0", got)
	}
	e.stop()
	select {
	case <-e.ended:
	case <-time.After(10 * time.Second):
		t.Error("the goroutine did not end")
	}
}

type handlerFunc func(caddy.Event)

func (f handlerFunc) Handle(_ context.Context, e caddy.Event) error { f(e); return nil }
