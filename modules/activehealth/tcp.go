// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(new(TCP)) }

// TCP connects to a server; if it is told to, it sends something and looks at
// what comes back.
type TCP struct {
	Settings

	// What is sent after connecting; Go escapes such as \r\n and \x00 work.
	Send string `json:"send,omitempty"`

	// A regular expression that what comes back must match, within 64 KiB and the
	// timeout.
	Expect string `json:"expect,omitempty"`

	send   []byte
	expect *regexp.Regexp
}

// CaddyModule returns the Caddy module information.
func (*TCP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.health_checks.tcp", New: func() caddy.Module { return new(TCP) }}
}

// Provision checks the settings.
func (c *TCP) Provision(caddy.Context) error {
	if err := c.settle(); err != nil {
		return err
	}
	return c.compile()
}

func (c *TCP) compile() (err error) {
	if c.send, err = unescape(c.Send); err != nil {
		return fmt.Errorf("send %q: %w", c.Send, err)
	}
	if c.expect, err = optionalRegexp(c.Expect); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	return nil
}

// unescape reads Go's escapes.
func unescape(text string) ([]byte, error) {
	var out []byte
	for text != "" {
		r, wide, rest, err := strconv.UnquoteChar(text, 0)
		if err != nil {
			return nil, errors.New("expected escapes such as \\r, \\n, \\x00 or \\\\")
		}
		if wide {
			out = utf8.AppendRune(out, r)
		} else {
			out = append(out, byte(r))
		}
		text = rest
	}
	return out, nil
}

// Rules implements upstream.HealthCheck.
func (c *TCP) Rules() upstream.CheckRules { return c.rules("tcp") }

// Watch implements upstream.HealthCheck.
func (c *TCP) Watch(judge upstream.Judge) upstream.Watcher {
	return watch("tcp", c, &c.Settings, nil, judge)
}

// check implements checker.
func (c *TCP) check(ctx context.Context, t target) error {
	conn, err := dial(ctx, t, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if len(c.send) > 0 {
		if _, err := conn.Write(c.send); err != nil {
			return fmt.Errorf("sending: %w", plain(err))
		}
	}
	if c.expect == nil {
		return nil
	}
	var got []byte
	chunk := make([]byte, 4<<10)
	for len(got) < maxCheckedBody {
		n, err := conn.Read(chunk)
		got = append(got, chunk[:n]...)
		if c.expect.Match(got) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the answer does not match %s: %w", c.Expect, plain(err))
		}
	}
	return fmt.Errorf("the answer does not match %s", c.Expect)
}

// UnmarshalCaddyfile reads `health_check tcp [send=] [expect=] [<setting>=<value>...]`.
func (c *TCP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	params := c.params()
	params["send"] = cfg.Param{Set: stringParam(&c.Send)}
	params["expect"] = cfg.Param{Set: stringParam(&c.Expect)}
	if err := params.Parse(d.RemainingArgs()); err != nil {
		return d.Errf("health_check tcp: %v", err)
	}
	check := *c
	for _, f := range []func() error{check.settle, check.compile} {
		if err := f(); err != nil {
			return d.Errf("health_check tcp: %v", err)
		}
	}
	return noBlock(d, "tcp")
}

// Interface guards
var (
	_ upstream.HealthCheck  = (*TCP)(nil)
	_ caddy.Provisioner     = (*TCP)(nil)
	_ caddyfile.Unmarshaler = (*TCP)(nil)
)
