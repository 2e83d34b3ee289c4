// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Options returns the options of next_upstream as they stand in its block; with
// prefix "next_upstream", as they stand in the block of proxy_pass.
func (t *Transport) Options(prefixed bool) cfg.Options {
	conditions, tries, timeout := "conditions", "tries", "timeout"
	if prefixed {
		conditions, tries, timeout = "next_upstream", "next_upstream_tries", "next_upstream_timeout"
	}
	return cfg.Options{
		conditions:               t.parseConditions,
		tries:                    cfg.Int(&t.Tries, 0),
		timeout:                  cfg.DurationOrZero(&t.Timeout),
		"connect_hedge":          cfg.Duration(&t.ConnectHedge),
		"request_buffering":      cfg.Word(&t.RequestBuffering, "on", "off"),
		"request_buffer_size":    cfg.Size(&t.RequestBufferSize, 1),
		"request_max_temp_file":  cfg.Size(&t.RequestMaxTempFile, 1),
		"request_max_temp_total": cfg.Size(&t.RequestMaxTempTotal, 1),
		"request_body_files":     t.parseBodyFiles,
		"keepalive_stale":        cfg.Word(&t.KeepaliveStale, "retry", "fail"),
	}
}

func (t *Transport) parseConditions(d *caddyfile.Dispenser) error {
	name := d.Val()
	if err := cfg.Strings(&t.Conditions)(d); err != nil {
		return err
	}
	if _, err := peer.ParseConditions(t.Conditions); err != nil {
		return d.Errf("%s: %v", name, err)
	}
	return nil
}

func (t *Transport) parseBodyFiles(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.Err("request_body_files: got no arguments, expected a directory, always and keep")
	}
	t.RequestBodyFiles = &BodyFiles{Dir: args[0]}
	for _, word := range args[1:] {
		flags := map[string]*bool{"always": &t.RequestBodyFiles.Always, "keep": &t.RequestBodyFiles.Keep}
		if flag := flags[word]; flag == nil || *flag {
			return d.Errf("request_body_files: unexpected %q: expected always and keep, once each", word)
		} else {
			*flag = true
		}
	}
	return nil
}

// UnmarshalCaddyfile sets up the transport from:
//
//	transport next_upstream {
//	    conditions <condition...>
//	    tries <n>
//	    timeout <duration>
//	    connect_hedge <duration>
//	    request_buffering on|off
//	    request_buffer_size <size>
//	    request_max_temp_file <size>
//	    request_max_temp_total <size>
//	    request_body_files <directory> [always] [keep]
//	    keepalive_stale retry|fail
//	    transport <name> {
//	        ...
//	    }
//	}
func (t *Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("transport next_upstream: unexpected argument %q: expected none", d.Val())
	}
	options := t.Options(false)
	options["transport"] = t.parseTransport
	given := options.Record()
	if err := options.Block(d, "transport next_upstream", nil); err != nil {
		return err
	}
	if err := t.defaultInner(); err != nil {
		return d.WrapErr(err)
	}
	if option, err := t.Check(); err != nil {
		return given.Errf(option, "transport next_upstream: %v", err)
	}
	return nil
}

func (t *Transport) parseTransport(d *caddyfile.Dispenser) error {
	name, mod, err := cfg.Module(d, "transport", "http.reverse_proxy.transport", "transport")
	if err != nil {
		return err
	}
	inner, ok := mod.(http.RoundTripper)
	if !ok {
		return d.Errf("transport %s is not a transport", name)
	}
	if _, ok := inner.(*Transport); ok {
		return d.Errf("transport: %v", errNested)
	}
	t.Inner = inner
	return nil
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Transport)(nil)
