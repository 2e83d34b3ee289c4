// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

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
	given   cfg.Given
}

func newBackend() *backend {
	return &backend{
		next:  new(nextupstream.Transport),
		http1: new(upstreamkeepalive.Transport),
	}
}

// options returns the options of both transports.
func (b *backend) options() cfg.Options {
	options := b.next.Options(true)
	for _, name := range upstreamkeepalive.OptionNames() {
		options[name] = func(d *caddyfile.Dispenser) error {
			_, err := b.http1.UnmarshalOption(d)
			return err
		}
	}
	http1Version := options["http_version"]
	options["http_version"] = func(d *caddyfile.Dispenser) error {
		ahead := *d
		if ahead.NextArg() && (ahead.Val() == "1.0" || ahead.Val() == "1.1") {
			return http1Version(d)
		}
		return cfg.Word(&b.version, "1.0", "1.1", "2", "3")(d)
	}
	b.given = options.Record()
	return options
}

// errf is an error on the line of an option that was given.
func (b *backend) errf(option, format string, args ...any) error {
	return b.given.Errf(option, "proxy_pass: "+format, args...)
}

// firstTLS returns one of the TLS options that were given, or "".
func (b *backend) firstTLS() string {
	for _, name := range upstreamkeepalive.OptionNames() {
		if strings.HasPrefix(name, "tls") && b.given[name] != nil {
			return name
		}
	}
	return ""
}

func optionNames(own cfg.Options) []string {
	names := slices.Collect(maps.Keys(own))
	names = slices.AppendSeq(names, maps.Keys(passedOn))
	slices.Sort(names)
	return names
}

// transport makes next_upstream with the inner transport that the scheme and
// the version ask for.
func (b *backend) transport(scheme string) (*nextupstream.Transport, error) {
	if err := b.checkScheme(scheme); err != nil {
		return nil, err
	}
	if scheme == "https" && b.http1.TLS == nil {
		b.http1.TLS = new(upstreamkeepalive.TLS)
	}
	if scheme == "h2c" || b.version != "" {
		inner, err := b.multiplexed(scheme)
		if err != nil {
			return nil, err
		}
		b.next.SetInner(inner)
	} else {
		if option, err := b.http1.Check(); err != nil {
			return nil, b.errf(option, "%v", err)
		}
		b.next.SetInner(b.http1)
	}
	if option, err := b.next.Check(); err != nil {
		return nil, b.errf(option, "%v", err)
	}
	return b.next, nil
}

// checkScheme finds options that do not go with the scheme or with each other.
func (b *backend) checkScheme(scheme string) error {
	tls := b.firstTLS()
	version := b.given.First("http_version")
	switch {
	case scheme == "http" && tls != "":
		return b.errf(tls, "%s does not go with http://: expected https://", tls)
	case scheme == "h2c" && tls != "":
		return b.errf(tls, "%s does not go with h2c://: expected https://", tls)
	case scheme == "h2c" && version != "":
		return b.errf(version, "http_version does not go with h2c://, which is HTTP/2 without TLS")
	case b.version != "" && tls == "" && scheme != "https":
		return b.errf(version, "http_version %s needs TLS: expected https://, or h2c:// for HTTP/2 without TLS", b.version)
	}
	return nil
}
