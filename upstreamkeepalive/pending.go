// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// pending is a connection that is made in a goroutine of its own, so that it
// can outlive the request it was begun for. It ends at connect_timeout.
type pending struct {
	t      *Transport
	key    key
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // guards what follows
	ended   bool
	aborted bool
	owner   func(*exchange.Error) // nil while the exchange waits
	c       *conn                 // until it is taken
	err     *exchange.Error
}

// start begins to connect to g for x. Nothing of the request is used after it
// has returned.
func (t *Transport) start(x *trip, g *target) *pending {
	ctx, cancel := context.WithTimeout(context.Background(), t.connectTimeout)
	p := &pending{t: t, key: g.key, cancel: cancel, done: make(chan struct{})}
	go p.run(ctx, *g, t.proxyHeader(x.req))
	return p
}

func (p *pending) run(ctx context.Context, g target, header *proxyproto.Header) {
	defer p.cancel()
	c, op, err := p.t.connect(ctx, header, &g)
	p.mu.Lock()
	switch {
	case p.aborted:
		p.err = &exchange.Error{Kind: exchange.ClientGone, Op: cmp.Or(op, "connect"), Err: context.Canceled}
	case err != nil:
		p.err = &exchange.Error{Kind: connectKind(ctx, err), Op: op, Err: err}
	default:
		p.c, c = c, nil
	}
	p.ended = true
	owner := p.owner
	p.mu.Unlock()
	if c != nil {
		c.closeNow()
	}
	close(p.done)
	if owner != nil {
		owner(p.err)
	}
}

// Done implements exchange.Pending.
func (p *pending) Done() <-chan struct{} { return p.done }

// Park implements exchange.Pending.
func (p *pending) Park(f func(*exchange.Error)) {
	p.mu.Lock()
	ended := p.ended
	if !ended {
		p.owner = f
	}
	p.mu.Unlock()
	if ended {
		f(p.err)
	}
}

// Abort implements exchange.Pending and exchange.Aborter.
func (p *pending) Abort() {
	p.mu.Lock()
	p.aborted = true
	p.mu.Unlock()
	p.cancel()
}

// take returns the connection, which must have come, to the first who asks.
func (p *pending) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.c
	p.c = nil
	return c
}

// Keep implements exchange.Pending.
func (p *pending) Keep() {
	if c := p.take(); c != nil {
		p.t.keep(c, time.Now())
	}
}

// await is open for an attempt with a race.
func (t *Transport) await(x *trip, g *target) (*conn, *exchange.Error) {
	p := t.start(x, g)
	if !x.a.Attach(p) {
		p.Abort()
		return nil, x.gone("connect")
	}
	if !x.a.Race.Wait(x.a, p) { // p stays attached
		return nil, &exchange.Error{Kind: exchange.Parked, Op: "connect", Err: errParked}
	}
	aborted := x.a.Detach()
	switch {
	case p.err != nil && p.err.Kind == exchange.ClientGone:
		return nil, x.gone(p.err.Op)
	case p.err != nil:
		return nil, p.err
	}
	c := p.take()
	if aborted {
		c.closeNow()
		return nil, x.gone("connect")
	}
	return c, nil
}

// dialed returns the connection that was parked for x, nil if there is none that
// goes to g.
func (x *trip) dialed(g *target) *conn {
	p, ok := x.a.Dialed.(*pending)
	if !ok {
		return nil
	}
	if p.key != g.key { // made for another name than it is asked for now
		return nil
	}
	x.a.Dialed = nil
	return p.take()
}

// drop keeps a parked connection that was not used.
func (x *trip) drop() {
	if p := x.a.Dialed; p != nil {
		x.a.Dialed = nil
		p.Keep()
	}
}

// ConnectLimit implements exchange.Racer.
func (t *Transport) ConnectLimit() time.Duration {
	return orDefault(t.ConnectTimeout, defaultTimeout)
}
