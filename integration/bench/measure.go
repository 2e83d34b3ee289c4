// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// measure puts one load on one peer.
func (b *bench) measure(ctx context.Context, m *mode, p *peer, conns int) (sample, error) {
	if m.name == "idle" {
		return b.idle(ctx, m, p, conns)
	}
	addr := loopback(p.ports[m.front])
	if b.warm > 0 {
		if _, err := m.load(ctx, b, addr, conns, b.warm); err != nil {
			return sample{}, err
		}
	}
	before, ours := cpuSeconds(p.proc.cmd.Process.Pid), b.ownCPU()
	busy := busySeconds()
	l, err := m.load(ctx, b, addr, conns, b.duration)
	if err != nil {
		return sample{}, fmt.Errorf("%w\n%s", err, p.proc.log)
	}
	s := sample{load: l, CPU: cpuSeconds(p.proc.cmd.Process.Pid) - before}
	s.Other = busySeconds() - busy - s.CPU - (b.ownCPU() - ours)
	s.N /= m.scale
	if s.N == 0 {
		return s, fmt.Errorf("no %s at all", m.unit)
	}
	return s, nil
}

// ownCPU is the CPU time of the backends and the load generators. Those are
// children of this process or this process itself, and so are the proxies,
// which are counted apart.
func (b *bench) ownCPU() float64 {
	total := cpuSeconds(os.Getpid())
	for _, p := range b.running {
		total -= cpuSeconds(p.proc.cmd.Process.Pid)
	}
	return total
}

// idle opens sessions through a proxy that has just been started and looks at
// what its memory has gained for each when they have nothing more to do.
func (b *bench) idle(ctx context.Context, m *mode, p *peer, sessions int) (sample, error) {
	if err := p.restart(ctx); err != nil {
		return sample{}, err
	}
	addr := loopback(p.ports[m.front])
	// The first sessions pay for what all of them share.
	if _, err := connRate(ctx, b, addr, 16, 200*time.Millisecond); err != nil {
		return sample{}, err
	}
	before := resident(p.proc.cmd.Process.Pid)
	began := time.Now()
	open, err := openSessions(ctx, addr, sessions)
	defer closeAll(open)
	if err != nil {
		return sample{}, err
	}
	s := sample{load: load{N: float64(sessions), Seconds: time.Since(began).Seconds()}}
	select { // collectors and allocators come to rest
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return s, ctx.Err()
	}
	s.Bytes = max(1, resident(p.proc.cmd.Process.Pid)-before)
	return s, nil
}
