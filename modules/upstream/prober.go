// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

const (
	// probeTimeout bounds the background connection of `probe=tcp`.
	probeTimeout = 5 * time.Second
	// maxProbes bounds how many there are at once, for each group; others wait
	// until they are asked for again.
	maxProbes = 32
)

// prober connects in the background to servers with `probe=tcp` whose
// fail_timeout is over. It belongs to a Runtime and ends with it.
type prober struct {
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}

	mu    sync.Mutex // guards ended, and running against close
	ended bool

	running sync.WaitGroup
}

func newProber() *prober {
	p := &prober{slots: make(chan struct{}, maxProbes)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// probe answers the engine's ProbeWanted for x.
func (p *prober) probe(group *peer.Group, x *peer.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	select {
	case p.slots <- struct{}{}:
	default:
		return // the engine asks again
	}
	p.running.Go(func() {
		defer func() { <-p.slots }()
		err := reach(p.ctx, x.Address())
		if p.ctx.Err() == nil {
			group.Probed(x, err == nil, err, time.Now())
		}
	})
}

// reach connects to a server and closes the connection.
func reach(ctx context.Context, address string) error {
	na, err := caddy.ParseNetworkAddressWithDefaults(address, "tcp", 80)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: probeTimeout}
	target := na.JoinHostPort(0)
	c, err := dialer.DialContext(ctx, na.Network, target)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return c.Close()
}

// close ends all probes and waits for them.
func (p *prober) close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
}
