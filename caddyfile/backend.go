// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile

import (
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/modules/nextupstream"
	"github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)

// backend collects the options of proxy_pass that say how servers are talked
// to, and makes the transport of them.
type backend struct {
	next    *nextupstream.Transport
	http1   *upstreamkeepalive.Transport
	version string // http_version, if it is not one of HTTP/1
	given   map[string]bool
}

func newBackend() *backend {
	return &backend{
		next:  new(nextupstream.Transport),
		http1: new(upstreamkeepalive.Transport),
		given: map[string]bool{},
	}
}

// options returns the options of both transports.
func (b *backend) options() cfg.Options {
	options := b.next.Options(true)
	for _, name := range upstreamkeepalive.OptionNames() {
		options[name] = func(d *caddyfile.Dispenser) error {
			b.given[d.Val()] = true
			_, err := b.http1.UnmarshalOption(d)
			return err
		}
	}
	http1Version := options["http_version"]
	options["http_version"] = func(d *caddyfile.Dispenser) error {
		ahead := *d
		if ahead.NextArg() && (ahead.Val() == "2" || ahead.Val() == "3") {
			return cfg.Word(&b.version, "1.0", "1.1", "2", "3")(d)
		}
		return http1Version(d)
	}
	return options
}

func optionNames(own cfg.Options) []string {
	names := slices.Collect(maps.Keys(own))
	names = slices.AppendSeq(names, maps.Keys(passedOn))
	slices.Sort(names)
	return names
}

// transport makes next_upstream with the inner transport that the scheme and
// the version ask for.
func (b *backend) transport(d *caddyfile.Dispenser, scheme string) (*nextupstream.Transport, error) {
	if scheme == "https" && b.http1.TLS == nil {
		b.http1.TLS = new(reverseproxy.TLSConfig)
	}
	switch {
	case scheme == "http" && b.http1.TLS != nil:
		return nil, d.Err("proxy_pass: TLS options do not go with http://: expected https://")
	case scheme == "h2c" && (b.http1.TLS != nil || b.version != "" || b.given["http_version"]):
		return nil, d.Err("proxy_pass: neither TLS options nor http_version go with h2c://")
	case b.version != "" && b.http1.TLS == nil:
		return nil, d.Errf("proxy_pass: http_version %s needs TLS: expected https://, or h2c:// for HTTP/2 without TLS", b.version)
	}
	b.next.SetInner(b.http1)
	if scheme == "h2c" || b.version != "" {
		inner, err := b.multiplexed(d, scheme)
		if err != nil {
			return nil, err
		}
		b.next.SetInner(inner)
	}
	return b.next, nil
}

// multiplexed makes Caddy's own http transport for HTTP/2, h2c and HTTP/3.
func (b *backend) multiplexed(d *caddyfile.Dispenser, scheme string) (*reverseproxy.HTTPTransport, error) {
	for _, name := range []string{"keepalive", "keepalive_requests", "keepalive_time"} {
		if b.given[name] {
			return nil, d.Errf("proxy_pass: %s is for HTTP/1 servers: HTTP/2 and 3 keep one connection to each server", name)
		}
	}
	h := b.http1
	versions := []string{b.version}
	if scheme == "h2c" {
		versions = []string{"h2c", "2"}
	}
	const minute = caddy.Duration(60e9) // nginx's default
	t := &reverseproxy.HTTPTransport{
		Versions: versions, TLS: h.TLS,
		DialTimeout:           orElse(h.ConnectTimeout, minute),
		ResponseHeaderTimeout: orElse(h.ReadTimeout, minute),
		ReadTimeout:           h.ReadTimeout, WriteTimeout: h.SendTimeout,
		MaxResponseHeaderSize: int64(h.ResponseHeaderLimit),
		LocalAddress:          h.BindAddress, ProxyProtocol: h.ProxyProtocol,
	}
	if h.KeepaliveTimeout > 0 {
		t.KeepAlive = &reverseproxy.KeepAlive{IdleConnTimeout: h.KeepaliveTimeout}
	}
	return t, nil
}

func orElse(d, otherwise caddy.Duration) caddy.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
