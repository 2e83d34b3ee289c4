// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// mode is one kind of load.
type mode struct {
	name   string
	title  string
	stream bool     // which proxies and configurations: stream or HTTP
	front  string   // the name of the listener in the configurations
	unit   string   // what is counted
	scale  float64  // units are divided by this before they are printed
	conns  []int    // connections at once
	refs   []string // peers that others are compared with
	load   func(ctx context.Context, b *bench, addr string, conns int, d time.Duration) (load, error)
}

// load is what a load generator counted.
type load struct {
	N       float64 // units
	Seconds float64
	P50     time.Duration
	P99     time.Duration
	Errors  int
}

var (
	httpConns = []int{8, 64, 256}
	httpRefs  = []string{"stock", "nginx"}
	l4Refs    = []string{"nginx", "caddy-l4"}
)

const gigabyte = 1e9

func modes() []*mode {
	return []*mode{
		{name: "ka", title: "100-byte answers, connections kept alive on both sides", front: "ka", unit: "requests", scale: 1,
			conns: httpConns, refs: httpRefs, load: wrk("/")},
		{name: "noka", title: "100-byte answers, a new connection to the backend for each", front: "noka", unit: "requests", scale: 1,
			conns: httpConns, refs: httpRefs, load: wrk("/")},
		{name: "big", title: "1 MiB answers, connections kept alive on both sides", front: "ka", unit: "GB", scale: gigabyte / (1 << 20),
			conns: []int{16}, refs: httpRefs, load: wrk("/1m")},
		{name: "bulk", title: "bulk bytes from the backend", stream: true, front: "source", unit: "GB", scale: gigabyte,
			conns: []int{1, 8}, refs: l4Refs, load: bulkDown},
		{name: "bulkup", title: "bulk bytes to the backend", stream: true, front: "sink", unit: "GB", scale: gigabyte,
			conns: []int{1, 8}, refs: l4Refs, load: bulkUp},
		{name: "rate", title: "connections: open, 16 bytes there and back, close", stream: true, front: "echo", unit: "connections", scale: 1,
			conns: []int{64}, refs: l4Refs, load: connRate},
		{name: "ping", title: "round trips of 64 bytes on open connections", stream: true, front: "echo", unit: "round trips", scale: 1,
			conns: []int{1}, refs: l4Refs, load: pingPong},
		{name: "udp", title: "datagrams of 64 bytes there and back, 8 in flight for each client", stream: true, front: "udp", unit: "datagrams", scale: 1,
			conns: []int{8}, refs: l4Refs, load: udpEcho},
		{name: "idle", title: "memory of idle sessions", stream: true, front: "echo", unit: "sessions", scale: 1,
			refs: l4Refs},
	}
}

func modeNames() []string {
	var names []string
	for _, m := range modes() {
		names = append(names, m.name)
	}
	return names
}

func modeByName(name string) *mode {
	for _, m := range modes() {
		if m.name == name {
			return m
		}
	}
	return nil
}

// sample is one measurement.
type sample struct {
	Mode  string
	Peer  string
	Conns int
	Round int
	load
	CPU   float64 // seconds, of the proxy and its children
	Other float64 // CPU seconds of everything on the machine that is no part of the run
	Bytes float64 // resident bytes gained, for memory
}

func (s sample) rate() float64 { return s.N / s.Seconds }

// cost is the proxy's CPU seconds for one unit, or its bytes for one session.
func (s sample) cost() float64 {
	if s.Bytes > 0 {
		return s.Bytes / s.N
	}
	return s.CPU / s.N
}

func (s sample) String() string {
	if s.Bytes > 0 {
		return fmt.Sprintf("%.0f sessions, %.1f KiB each", s.N, s.cost()/1024)
	}
	return fmt.Sprintf("%.5g/s, CPU %.2f s, %.4g µs each, p50 %v, p99 %v, %d errors, other CPU %.2f s",
		s.rate(), s.CPU, s.cost()*1e6, s.P50, s.P99, s.Errors, s.Other)
}
