// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench compares whole proxies in one interleaved run: this module,
// stock Caddy, nginx, haproxy, and for streams caddy-l4. README.md in this
// folder says how to run it and how to read what it prints.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	modes    []string
	peers    []string
	conns    []int // nil: each mode's own
	rounds   int
	fresh    int
	duration time.Duration
	warm     time.Duration
	tries    int
	sessions int
	caddy    string
	l4       string
	raw      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var modeList, peerList, connList string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&modeList, "modes", "ka", "what to measure, with commas: "+strings.Join(modeNames(), " "))
	fs.StringVar(&peerList, "peers", "", "which proxies, with commas (all that are installed)")
	fs.StringVar(&connList, "conns", "", "connections at once, with commas (8,64,256 for HTTP, each mode's own for streams)")
	fs.IntVar(&o.rounds, "rounds", 5, "rounds; each runs every peer once")
	fs.IntVar(&o.fresh, "fresh", 0, "start the proxies anew after this many rounds (0: never)")
	fs.DurationVar(&o.duration, "duration", 4*time.Second, "time of one measurement")
	fs.DurationVar(&o.warm, "warm", time.Second, "time before it that does not count")
	fs.IntVar(&o.tries, "tries", 3, "measure again, at most this often in all, while something else used over a tenth of a core; the calmest counts")
	fs.IntVar(&o.sessions, "sessions", 10000, "idle sessions of mode idle")
	fs.StringVar(&o.caddy, "caddy", "", "Caddy with this module, for ours and stock (built from ./examples/caddy)")
	fs.StringVar(&o.l4, "caddy-l4", "", "Caddy with caddy-l4 (built with xcaddy, kept in the user's cache)")
	fs.StringVar(&o.raw, "json", "", "file to write every single measurement to, one JSON object a line")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.modes, o.peers = fields(modeList), fields(peerList)
	for _, m := range o.modes {
		if modeByName(m) == nil {
			return o, fmt.Errorf("unknown mode %q, want one of %v", m, modeNames())
		}
	}
	for _, c := range fields(connList) {
		n, err := strconv.Atoi(c)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-conns %q: want positive numbers", connList)
		}
		o.conns = append(o.conns, n)
	}
	if o.rounds < 1 || o.tries < 1 || o.duration <= 0 {
		return o, errors.New("-rounds, -tries and -duration must be positive")
	}
	if o.fresh < 0 {
		return o, fmt.Errorf("-fresh %d: must not be negative", o.fresh)
	}
	return o, nil
}

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	raiseDescriptorLimit()
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	if o.raw != "" {
		f, err := os.Create(o.raw)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		b.raw = json.NewEncoder(f)
	}
	fmt.Printf("`go run ./integration/bench %s` (%d CPUs, %s)\n", strings.Join(args, " "), runtime.NumCPU(), runtime.Version())
	for _, name := range o.modes {
		if err := b.mode(ctx, modeByName(name)); err != nil {
			return fmt.Errorf("mode %s: %w", name, err)
		}
	}
	return nil
}

// mode measures one mode at each number of connections and prints its tables.
func (b *bench) mode(ctx context.Context, m *mode) error {
	peers, err := b.peersOf(m)
	if err != nil {
		return err
	}
	conns := b.conns
	if conns == nil || m.name == "idle" {
		conns = m.conns
	}
	if m.name == "idle" {
		conns = []int{b.fitSessions()}
	}
	each := b.duration + b.warm + time.Second
	total := time.Duration(len(conns)*b.rounds*len(peers)) * each
	fmt.Fprintf(os.Stderr, "%s: %d measurements, about %v\n", m.name, len(conns)*b.rounds*len(peers), total.Round(time.Second))
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+b.tries)*total+5*time.Minute)
	defer cancel()

	for _, n := range conns {
		var samples []sample
		for round := range b.rounds {
			// Whoever goes first in one round goes last in the next: a machine
			// that becomes slower or faster favours nobody.
			order := slices.Clone(peers)
			if b.fresh > 0 && round > 0 && round%b.fresh == 0 {
				for _, p := range peers {
					if err := p.restart(ctx); err != nil {
						return err
					}
				}
			}
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, p := range order {
				s, err := b.calmest(ctx, m, p, n, round)
				if err != nil {
					return fmt.Errorf("%s with %d connections: %w", p.name, n, err)
				}
				samples = append(samples, s)
			}
		}
		fmt.Println(table(m, n, peerNames(peers), samples))
	}
	return nil
}

// calmest measures until nothing else used over a tenth of a core meanwhile, at
// most b.tries times, and returns the measurement that was disturbed least.
func (b *bench) calmest(ctx context.Context, m *mode, p *peer, conns, round int) (best sample, err error) {
	for try := range b.tries {
		s, err := b.measure(ctx, m, p, conns)
		if err != nil {
			return s, err
		}
		s.Mode, s.Peer, s.Conns, s.Round = m.name, p.name, conns, round
		fmt.Fprintf(os.Stderr, "%s %s c=%d round %d: %s\n", m.name, p.name, conns, round, s)
		if b.raw != nil {
			if err := b.raw.Encode(s); err != nil {
				return s, err
			}
		}
		if try == 0 || s.Other/s.Seconds < best.Other/best.Seconds {
			best = s
		}
		if s.Other/s.Seconds <= 0.1 {
			break
		}
	}
	return best, nil
}
