// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// Settings are what all kinds of checks have in common.
type Settings struct {
	// The time from one check of a server to the next. Default: 5s.
	Interval caddy.Duration `json:"interval,omitempty"`

	// A random time, up to this, is added to each interval. Default: 0.
	Jitter caddy.Duration `json:"jitter,omitempty"`

	// How long a check may take. Default: 1s, at most the interval.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The number of failed checks in a row after which a server is out.
	// Default: 1.
	Fails int `json:"fails,omitempty"`

	// The number of passed checks in a row after which it is back. Default: 1.
	Passes int `json:"passes,omitempty"`

	// Keep a new or returning server out until its first passed check.
	Mandatory bool `json:"mandatory,omitempty"`

	// With `mandatory`: servers that stay keep their verdicts when the
	// configuration of the group changes. Without it, they must pass again. (A
	// reload that leaves the group as it is changes nothing.)
	Persistent bool `json:"persistent,omitempty"`

	// What happens to the open stream sessions of a server that fails: `keep`
	// (default) or `close`.
	OnFail string `json:"on_fail,omitempty"`

	// The port that is asked, if it is not the server's own.
	Port int `json:"port,omitempty"`

	// The address that is asked, `host:port`, if it is not the server's own.
	// Traffic always goes to the server's own.
	Address string `json:"address,omitempty"`
}

// Defaults, nginx Plus's where it has them.
const (
	defaultInterval = 5 * time.Second
	defaultTimeout  = time.Second
)

// settle checks the settings and fills in defaults.
func (s *Settings) settle() error {
	switch {
	case s.Interval < 0 || s.Jitter < 0 || s.Timeout < 0:
		return fmt.Errorf("interval, jitter and timeout must not be negative")
	case s.Interval > 0 && time.Duration(s.Interval) < 10*time.Millisecond:
		return fmt.Errorf("interval %s: expected 10ms or more", time.Duration(s.Interval))
	case s.Fails < 0 || s.Passes < 0:
		return fmt.Errorf("fails and passes must not be negative")
	case s.OnFail != "" && s.OnFail != "keep" && s.OnFail != "close":
		return fmt.Errorf("on_fail %q: expected keep or close", s.OnFail)
	case s.Port < 0 || s.Port > 65535:
		return fmt.Errorf("port %d: expected 1 to 65535", s.Port)
	case s.Port != 0 && s.Address != "":
		return fmt.Errorf("port and address: expected one of them")
	case s.Address != "" && !validAddress(s.Address):
		return fmt.Errorf("address %q: expected host:port", s.Address)
	case s.Persistent && !s.Mandatory:
		return fmt.Errorf("persistent does nothing without mandatory: verdicts are kept anyway")
	}
	if s.Interval == 0 {
		s.Interval = caddy.Duration(defaultInterval)
	}
	if s.Timeout == 0 {
		s.Timeout = min(caddy.Duration(defaultTimeout), s.Interval)
	}
	s.Fails, s.Passes = max(s.Fails, 1), max(s.Passes, 1)
	return nil
}

func validAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && host != "" && n > 0
}

// rules tells the group what it must know of the check called name.
func (s *Settings) rules(name string) upstream.CheckRules {
	switch {
	case s.Port != 0:
		name += " :" + strconv.Itoa(s.Port)
	case s.Address != "":
		name += " " + s.Address
	}
	return upstream.CheckRules{
		Name: name, Mandatory: s.Mandatory, Persistent: s.Persistent, CloseSessions: s.OnFail == "close",
	}
}

// params are the settings as they stand on a Caddyfile line.
func (s *Settings) params() cfg.Params {
	return cfg.Params{
		"interval":   {Set: durationParam(&s.Interval, 10*time.Millisecond)},
		"jitter":     {Set: durationParam(&s.Jitter, 0)},
		"timeout":    {Set: durationParam(&s.Timeout, time.Millisecond)},
		"fails":      {Set: intParam(&s.Fails, 1)},
		"passes":     {Set: intParam(&s.Passes, 1)},
		"mandatory":  {Flag: true, Set: flagParam(&s.Mandatory)},
		"persistent": {Flag: true, Set: flagParam(&s.Persistent)},
		"on_fail":    {Set: wordParam(&s.OnFail, "keep", "close")},
		"port":       {Set: intParam(&s.Port, 1)},
		"address":    {Set: stringParam(&s.Address)},
	}
}

func durationParam(dst *caddy.Duration, low time.Duration) func(string) error {
	return func(v string) error {
		d, err := cfg.ParseDuration(v, low)
		*dst = caddy.Duration(d)
		return err
	}
}

func intParam(dst *int, low int) func(string) error {
	return func(v string) (err error) {
		*dst, err = cfg.ParseInt(v, low)
		return err
	}
}

func flagParam(dst *bool) func(string) error {
	return func(string) error { *dst = true; return nil }
}

func stringParam(dst *string) func(string) error {
	return func(v string) error { *dst = v; return nil }
}

func wordParam(dst *string, words ...string) func(string) error {
	return func(v string) error {
		for _, w := range words {
			if v == w {
				*dst = v
				return nil
			}
		}
		return fmt.Errorf("unexpected %q: expected %s", v, strings.Join(words, " or "))
	}
}
