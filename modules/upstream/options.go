// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Guards are the options of a group that limit what a rush or a row of failures
// can do to it. All are off by default.
type Guards struct {
	// The requests that wait while no server can take one.
	Queue *Queue `json:"queue,omitempty"`

	// The greatest part of the primary (or backup) servers, in percent, that
	// failures may take out at once. Default: 0, no limit.
	MaxUnavailable int `json:"max_unavailable,omitempty"`

	// The part of the primary (or backup) servers, in percent: while failures
	// leave fewer than that, all that are not down are used, failed or not.
	// Default: 0, never.
	Panic int `json:"panic,omitempty"`

	// How many further tries there may be at once.
	RetryBudget *RetryBudget `json:"retry_budget,omitempty"`

	// Begin the cycle of round robin at a random place when the group is first
	// loaded, so that many proxies that start together do not all begin with the
	// first server.
	RandomStart bool `json:"random_start,omitempty"`
}

// Queue is where requests and TCP sessions wait for a server, in order of arrival.
type Queue struct {
	// The number of requests that may wait; the next is refused at once.
	Size int `json:"size"`

	// How long a request waits; then it is refused with 502, which counts
	// against no server. Default: 60s.
	Timeout caddy.Duration `json:"timeout,omitempty"`
}

// RetryBudget limits the further tries of requests whose first try failed.
type RetryBudget struct {
	// The greatest part of the requests in flight, in percent, that may be
	// further tries.
	Percent int `json:"percent"`

	// The number of further tries that are allowed at once however few requests
	// are in flight. Default: 3.
	Min *int `json:"min,omitempty"`
}

const (
	defaultQueueTimeout = 60 * time.Second
	defaultRetryMin     = 3
)

// guardOptions adds the options to the table of a group's block.
func (g *Guards) guardOptions(options cfg.Options) {
	options["queue"] = g.unmarshalQueue
	options["max_unavailable"] = percent(&g.MaxUnavailable)
	options["panic"] = percent(&g.Panic)
	options["retry_budget"] = g.unmarshalRetryBudget
	options["random_start"] = cfg.Flag(&g.RandomStart)
}

// unmarshalQueue reads `queue <number> [timeout=<duration>]`.
func (g *Guards) unmarshalQueue(d *caddyfile.Dispenser) error {
	q := new(Queue)
	g.Queue = q
	return lead(d, "queue", "a number of requests",
		func(v string) (err error) { q.Size, err = cfg.ParseInt(v, 1); return err },
		cfg.Params{"timeout": {Set: func(v string) error { return plainDuration(&q.Timeout, v) }}})
}

// unmarshalRetryBudget reads `retry_budget <percent> [min=<number>]`.
func (g *Guards) unmarshalRetryBudget(d *caddyfile.Dispenser) error {
	b := new(RetryBudget)
	g.RetryBudget = b
	return lead(d, "retry_budget", "a percentage",
		func(v string) (err error) { b.Percent, err = parsePercent(v); return err },
		cfg.Params{"min": {Set: intParam(&b.Min, 0)}})
}

// lead reads an option with one value first and parameters after it.
func lead(d *caddyfile.Dispenser, option, what string, set func(string) error, params cfg.Params) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.Errf("%s: got no arguments, expected %s", option, what)
	}
	if err := set(args[0]); err != nil {
		return d.Errf("%s: %v", option, err)
	}
	if err := params.Parse(args[1:]); err != nil {
		return d.Errf("%s: %v", option, err)
	}
	return nil
}

// percent reads a percentage of 1 to 100.
func percent(dst *int) cfg.Setter {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		args := d.RemainingArgs()
		if len(args) != 1 {
			return d.Errf("%s: got %d arguments, expected a percentage", option, len(args))
		}
		n, err := parsePercent(args[0])
		if err != nil {
			return d.Errf("%s: %v", option, err)
		}
		*dst = n
		return nil
	}
}

func parsePercent(v string) (int, error) {
	n, err := cfg.ParseInt(strings.TrimSuffix(v, "%"), 1)
	if err != nil || n > 100 {
		return 0, fmt.Errorf("%q is not a percentage: expected a whole number from 1 to 100", v)
	}
	return n, nil
}

// plainDuration reads a duration of more than zero.
func plainDuration(dst *caddy.Duration, v string) error {
	d, err := cfg.ParseDuration(v, 1)
	*dst = caddy.Duration(d)
	return err
}

func probeParam(dst *string) func(string) error {
	return func(v string) error {
		if *dst = v; v != "tcp" {
			return fmt.Errorf("unexpected %q: expected tcp", v)
		}
		return nil
	}
}

// validateGuards checks what only JSON can hold; percentages are the engine's.
func (g *Guards) validateGuards() error {
	switch {
	case g.Queue != nil && g.Queue.Size < 1:
		return fmt.Errorf("queue: size %d: must be 1 or more; leave queue out to have none", g.Queue.Size)
	case g.Queue != nil && g.Queue.Timeout < 0:
		return fmt.Errorf("queue: timeout %s: must not be negative", time.Duration(g.Queue.Timeout))
	case g.RetryBudget != nil && (g.RetryBudget.Percent < 1 || g.RetryBudget.Percent > 100):
		return fmt.Errorf("retry_budget: percent %d: must be from 1 to 100", g.RetryBudget.Percent)
	case g.RetryBudget != nil && g.RetryBudget.Min != nil && *g.RetryBudget.Min < 0:
		return fmt.Errorf("retry_budget: min %d: must not be negative", *g.RetryBudget.Min)
	}
	var c peer.Config
	g.guard(&c)
	return c.Validate()
}

// guard tells the engine.
func (g *Guards) guard(c *peer.Config) {
	c.Guards.MaxUnavailable, c.Guards.Panic, c.RandomStart = g.MaxUnavailable, g.Panic, g.RandomStart
	if q := g.Queue; q != nil {
		c.Queue, c.QueueTimeout = q.Size, time.Duration(q.Timeout)
		if q.Timeout == 0 {
			c.QueueTimeout = defaultQueueTimeout
		}
	}
	if b := g.RetryBudget; b != nil {
		c.Guards.RetryBudget, c.Guards.RetryMin = b.Percent, defaultRetryMin
		if b.Min != nil {
			c.Guards.RetryMin = *b.Min
		}
	}
}

var errRoute = errors.New("route does nothing without sticky: add sticky to the group")

// checkTogether refuses options of servers that do nothing in this group.
func (g *Group) checkTogether() error {
	if g.StickyRaw != nil {
		return nil
	}
	for _, s := range g.Servers {
		if s != nil && s.Route != "" {
			return fmt.Errorf("server %s: %w", s.Address, errRoute)
		}
	}
	return nil
}

// checkRoutes is the same for a change at run time.
func (g *generation) checkRoutes(lines []line) error {
	for _, l := range lines {
		if l.server.Route != "" && !g.sticky {
			return fmt.Errorf("server %s: %w", l.server.id(), errRoute)
		}
	}
	return nil
}

// warn tells of what works but is hardly meant.
func (g *Group) warn(logger *zap.Logger) {
	if g.Queue == nil {
		return
	}
	for _, s := range g.Servers {
		if s.MaxConns > 0 {
			return
		}
	}
	logger.Warn("queue without max_conns on any server: requests wait only while all servers are out", zap.String("group", g.name))
}
