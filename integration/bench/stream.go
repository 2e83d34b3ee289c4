// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dial connects from one of several loopback addresses, so that a fast series
// of connections does not run out of ports.
func dial(addr string, i int) (net.Conn, error) {
	d := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%16))},
		Timeout:   10 * time.Second,
		// Without this the kernel chooses a port that is free for every
		// destination, before it knows the one that matters.
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			if cerr := c.Control(func(fd uintptr) {
				const bindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT
				err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, bindAddressNoPort, 1)
			}); cerr != nil {
				return cerr
			}
			return err
		},
	}
	return d.Dial("tcp4", addr)
}

// workers runs n of work at once for d. The load has what they counted.
func workers(ctx context.Context, n int, d time.Duration, work func(ctx context.Context, i int, c *counter) error) (load, error) {
	counters := make([]counter, n)
	errs := make([]error, n)
	began := time.Now() // before the deadline's clock, or a pause between them is missing
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = work(ctx, i, &counters[i]) })
	}
	wg.Wait()
	l := load{Seconds: time.Since(began).Seconds()}
	var times []time.Duration
	for i := range counters {
		l.N += counters[i].n
		l.Errors += counters[i].errors
		times = append(times, counters[i].times...)
	}
	slices.Sort(times)
	l.P50, l.P99 = percentile(times, 0.50), percentile(times, 0.99)
	return l, errors.Join(errs...)
}

// counter is what one worker counts.
type counter struct {
	n      float64
	errors int
	times  []time.Duration
}

func (c *counter) done(began time.Time) {
	c.n++
	c.times = append(c.times, time.Since(began))
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// closeAtEnd makes blocked calls on c return when ctx ends.
func closeAtEnd(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.Close() })
}

// bulkDown reads what the backend sends.
func bulkDown(ctx context.Context, _ *bench, addr string, conns int, d time.Duration) (load, error) {
	return bulk(ctx, addr, conns, d, net.Conn.Read)
}

// bulkUp sends to the backend.
func bulkUp(ctx context.Context, _ *bench, addr string, conns int, d time.Duration) (load, error) {
	return bulk(ctx, addr, conns, d, net.Conn.Write)
}

func bulk(ctx context.Context, addr string, conns int, d time.Duration, move func(net.Conn, []byte) (int, error)) (load, error) {
	return workers(ctx, conns, d, func(ctx context.Context, i int, n *counter) error {
		c, err := dial(addr, i)
		if err != nil {
			return err
		}
		defer c.Close()
		defer closeAtEnd(ctx, c)()
		buf := make([]byte, chunk)
		for {
			moved, err := move(c, buf)
			n.n += float64(moved)
			if err != nil {
				if ctx.Err() == nil {
					return fmt.Errorf("after %.0f bytes: %w", n.n, err)
				}
				return nil
			}
		}
	})
}

// connRate opens a connection, sends 16 bytes, reads them back and closes.
func connRate(ctx context.Context, _ *bench, addr string, conns int, d time.Duration) (load, error) {
	var series atomic.Int64
	return workers(ctx, conns, d, func(ctx context.Context, _ int, n *counter) error {
		buf := make([]byte, 16)
		for ctx.Err() == nil {
			began := time.Now()
			if err := oneConnection(addr, int(series.Add(1)), buf); err != nil {
				n.errors++
				continue
			}
			n.done(began)
		}
		return nil
	})
}

func oneConnection(addr string, i int, buf []byte) error {
	c, err := dial(addr, i)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return thereAndBack(c, buf)
}

func thereAndBack(c net.Conn, buf []byte) error {
	if _, err := c.Write(buf); err != nil {
		return err
	}
	_, err := io.ReadFull(c, buf)
	return err
}

// pingPong sends 64 bytes and waits for them, again and again.
func pingPong(ctx context.Context, _ *bench, addr string, conns int, d time.Duration) (load, error) {
	return workers(ctx, conns, d, func(ctx context.Context, i int, n *counter) error {
		c, err := dial(addr, i)
		if err != nil {
			return err
		}
		defer c.Close()
		defer closeAtEnd(ctx, c)()
		buf := make([]byte, 64)
		for ctx.Err() == nil {
			began := time.Now()
			if err := thereAndBack(c, buf); err != nil {
				if ctx.Err() == nil {
					return err
				}
				return nil
			}
			n.done(began)
		}
		return nil
	})
}

// udpWindow is how many datagrams of one client are under way at once. It is
// refilled in full before the next reading, so that proxies that take several
// datagrams in one system call find several.
const udpWindow = 8

// udpEcho counts datagrams that come back. What is lost is an error.
func udpEcho(ctx context.Context, _ *bench, addr string, conns int, d time.Duration) (load, error) {
	return workers(ctx, conns, d, func(ctx context.Context, _ int, n *counter) error {
		c, err := net.Dial("udp4", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		buf := make([]byte, 64)
		for ctx.Err() == nil {
			began := time.Now()
			sent := 0
			for range udpWindow {
				if _, err := c.Write(buf); err == nil {
					sent++
				}
			}
			_ = c.SetReadDeadline(began.Add(200 * time.Millisecond))
			for range sent {
				if _, err := c.Read(buf); err != nil {
					n.errors++
					continue
				}
				n.done(began)
			}
		}
		return nil
	})
}

// openSessions opens connections that have said something and then are idle.
func openSessions(ctx context.Context, addr string, n int) ([]net.Conn, error) {
	open := make([]net.Conn, 0, n)
	buf := make([]byte, 16)
	for i := range n {
		if ctx.Err() != nil {
			return open, ctx.Err()
		}
		c, err := dial(addr, i)
		if err != nil {
			return open, fmt.Errorf("session %d: %w", i, err)
		}
		open = append(open, c)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if err := thereAndBack(c, buf); err != nil {
			return open, fmt.Errorf("session %d: %w", i, err)
		}
	}
	return open, nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}
