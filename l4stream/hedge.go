// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// race is connect_hedge for one session: several servers are connected at the
// same time, and the first that is there gets the session. The others go on
// alone until they are there, and are closed, or have failed.
type race struct {
	p      *ProxyPass
	s      *Session
	group  *peer.Group
	ctx    context.Context
	cancel func() // the session is aborted

	running []*runner // in the order in which they began; the session's goroutine's own
	wake    chan struct{}

	mu    sync.Mutex // guards what follows
	ended []*runner
	over  bool // it has been decided
}

// runner is one server that is being connected. Its result may be read once it
// has ended.
type runner struct {
	t     *try
	lease *peer.Lease
	up    net.Conn
	took  time.Duration
	err   error
}

// race finds a server that can be connected.
func (p *ProxyPass) race(s *Session, group *peer.Group) (net.Conn, *try, error) {
	r := &race{p: p, s: s, group: group, wake: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if err := r.next(); err != nil {
		return nil, nil, err
	}
	defer s.stopDial.CompareAndSwap(&r.cancel, nil)
	delay := time.Duration(p.ConnectHedge)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-r.wake:
		case <-timer.C:
			r.hedge(time.Now())
			timer.Reset(delay)
		}
		for x := r.take(); x != nil; x = r.take() {
			if x.err == nil {
				return r.won(x)
			}
			if end := r.lost(x); end != nil {
				r.decide()
				return nil, nil, end
			}
		}
	}
}

// next begins to connect to the session's next server. While others are being
// connected it does not matter that there is none.
func (r *race) next() error {
	if len(r.running) == 0 {
		t, err := r.p.next(r.s, r.group)
		if err != nil {
			return err
		}
		r.start(t)
		return nil
	}
	if lease, err := r.s.walk.Next(time.Now()); err == nil {
		r.start(r.p.selected(r.s, r.group, lease))
	}
	return nil
}

// hedge begins to connect to one more server, because the latest is slow.
func (r *race) hedge(now time.Time) {
	if len(r.running) == 0 || !r.s.walk.MayHedge(&r.p.nextPolicy, now) {
		return
	}
	slow := r.running[len(r.running)-1]
	if lease, err := r.s.walk.Hedge(slow.lease, now); err == nil {
		r.start(r.p.selected(r.s, r.group, lease))
	}
}

func (r *race) start(t *try) {
	x := &runner{t: t, lease: t.lease}
	r.running = append(r.running, x)
	r.s.stopDial.Store(&r.cancel) // waiting in a queue has its own
	if r.s.aborted.Load() {
		r.cancel()
	}
	server := t.lease.Peer().Server()
	d, err := r.p.dialing(r.s, t, server.Address, server.Line)
	if err != nil {
		r.end(x, nil, err)
		return
	}
	go func() {
		ctx, cancel := context.WithDeadline(r.ctx, d.at)
		defer cancel()
		up, err := d.run(ctx)
		r.end(x, up, err)
	}()
}

// end hands the result over to the session, or deals with it if the session
// does not want it any more.
func (r *race) end(x *runner, up net.Conn, err error) {
	x.up, x.err, x.took = up, err, max(time.Since(x.t.started), 1)
	r.mu.Lock()
	over := r.over
	if !over {
		r.ended = append(r.ended, x)
	}
	r.mu.Unlock()
	if over {
		r.late(x)
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// late is the end of a connection that nobody waits for.
func (r *race) late(x *runner) {
	outcome := peer.Success // as in every session: it could be connected
	switch {
	case x.err == nil:
		_ = x.up.Close()
	case r.ctx.Err() != nil || localFailure(x.err):
		outcome = peer.None
	default:
		outcome = peer.Failed
		x.lease.Cause, x.lease.Reason = x.err, reasonOf(x.err)
	}
	x.lease.Done(outcome, time.Now())
}

// take returns one that has ended, nil if there is none.
func (r *race) take() *runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ended) == 0 {
		return nil
	}
	x := r.ended[0]
	r.ended = r.ended[1:]
	r.running = slices.DeleteFunc(r.running, func(y *runner) bool { return y == x })
	return x
}

// lost goes on after a server that could not be connected. It returns what the
// session ends with if nothing is left to wait for.
func (r *race) lost(x *runner) (end error) {
	again, end := r.p.failed(r.s, x.t, x.err, time.Now())
	switch {
	case again:
		return r.next()
	case len(r.running) > 0 && !r.s.aborted.Load():
		return nil
	}
	return end
}

// won gives the session to a server. It is the last of the session's tries from
// now on.
func (r *race) won(x *runner) (net.Conn, *try, error) {
	now, s := time.Now(), r.s
	for _, y := range r.running {
		s.walk.Park(y.lease, now)
	}
	r.decide()
	s.walk.Resume(x.lease, now)
	s.tries = append(slices.DeleteFunc(s.tries, func(t *try) bool { return t == x.t }), x.t)
	x.t.connect = x.took
	r.p.tune(*s.raw.Load())
	connected(s, x.t, now)
	return x.up, x.t, nil
}

// decide leaves what is still running to itself; if the session was aborted that
// ends at once.
func (r *race) decide() {
	if r.s.aborted.Load() {
		r.cancel()
	}
	now := time.Now()
	for _, y := range r.running {
		y.t.lease = nil // not the session's any more
		y.t.end = max(now.Sub(y.t.started), 1)
	}
	r.mu.Lock()
	r.over = true
	ended := r.ended
	r.ended = nil
	r.mu.Unlock()
	for _, x := range ended {
		r.late(x)
	}
}

// checkHedge says why connect_hedge would do nothing.
func (p *ProxyPass) checkHedge() error {
	delay, limit := time.Duration(p.ConnectHedge), time.Duration(orDefault(p.ConnectTimeout, defaultConnectTimeout))
	switch {
	case delay == 0:
		return nil
	case delay >= limit:
		return fmt.Errorf("connect_hedge %s does nothing: it must be shorter than connect_timeout, which is %s", delay, limit)
	case p.NextUpstreamTries == 1:
		return errors.New("connect_hedge does nothing with one try for each session")
	}
	return nil
}

// unmarshalHedge notes where the option stands, for errors that only the whole
// block shows.
func (p *ProxyPass) unmarshalHedge(at **caddyfile.Dispenser) cfg.Setter {
	return func(d *caddyfile.Dispenser) error {
		here := *d
		*at = &here
		return cfg.Duration(&p.ConnectHedge)(d)
	}
}
