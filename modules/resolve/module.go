// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(new(DNS)) }

// DNS looks up the servers of a group that have `resolve`.
type DNS struct {
	// The name servers, `host:port` or `host` (port 53). Default: the system's
	// resolver.
	Addresses []string `json:"addresses,omitempty"`

	// How long answers hold. Default: the time to live of the records.
	Valid caddy.Duration `json:"valid,omitempty"`

	// Ask for IPv6 addresses: `on` (default) or `off`.
	IPv6 string `json:"ipv6,omitempty"`

	// How long a look-up may take, and at least a second of waiting until the next
	// one after a failure. Default: 5s (nginx's resolver_timeout is 30s, longer
	// than most people wait for a new address).
	Timeout caddy.Duration `json:"timeout,omitempty"`

	client *client
	logger *zap.Logger
}

const defaultTimeout = 5 * time.Second

// CaddyModule returns the Caddy module information.
func (*DNS) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.resolvers.dns", New: func() caddy.Module { return new(DNS) }}
}

// Provision checks the options.
func (d *DNS) Provision(ctx caddy.Context) error {
	d.logger = ctx.Logger(upstream.App{})
	switch {
	case d.Valid < 0 || d.Timeout < 0:
		return errors.New("valid and timeout must not be negative")
	case d.IPv6 != "" && d.IPv6 != "on" && d.IPv6 != "off":
		return fmt.Errorf("ipv6 %q: expected on or off", d.IPv6)
	}
	d.client = &client{ipv6: d.IPv6 != "off", timeout: time.Duration(d.Timeout)}
	if d.client.timeout == 0 {
		d.client.timeout = defaultTimeout
	}
	for _, a := range d.Addresses {
		server, err := serverAddress(a)
		if err != nil {
			return err
		}
		d.client.servers = append(d.client.servers, server)
	}
	return nil
}

func serverAddress(text string) (string, error) {
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return net.JoinHostPort(ip.String(), "53"), nil
	}
	if ap, err := netip.ParseAddrPort(text); err == nil && ap.Port() > 0 {
		return ap.String(), nil
	}
	return "", fmt.Errorf("address %q: expected the IP address of a name server, with or without a port; names of name servers are not looked up", text)
}

// Lookup implements upstream.Resolver.
func (d *DNS) Lookup(ctx context.Context, q upstream.Query) (upstream.Answer, error) {
	if q.Service != "" {
		return d.lookupService(ctx, q)
	}
	a, err := d.client.lookup(ctx, q.Host)
	if err != nil {
		return upstream.Answer{}, err
	}
	out := upstream.Answer{Valid: d.valid(a.valid)}
	for _, addr := range a.addrs {
		out.Servers = append(out.Servers, upstream.Located{Addr: netip.AddrPortFrom(addr, q.Port)})
	}
	return out, nil
}

func (d *DNS) lookupService(ctx context.Context, q upstream.Query) (upstream.Answer, error) {
	targets, valid, err := d.client.lookupService(ctx, serviceName(q.Service, q.Host))
	if err != nil {
		return upstream.Answer{}, err
	}
	out := upstream.Answer{Valid: d.valid(valid)}
	for _, t := range targets {
		for _, addr := range t.addrs {
			out.Servers = append(out.Servers, upstream.Located{
				Addr: netip.AddrPortFrom(addr, t.port), Host: t.host,
				Weight: max(1, int(t.weight)), Backup: t.priority != targets[0].priority,
			})
		}
	}
	return out, nil
}

// serviceName is nginx's rule: a service without a dot stands for TCP.
func serviceName(service, host string) string {
	if !strings.Contains(service, ".") {
		service = "_" + service + "._tcp"
	}
	return service + "." + host
}

func (d *DNS) valid(ttl time.Duration) time.Duration {
	if d.Valid > 0 {
		return time.Duration(d.Valid)
	}
	return ttl
}

// RetryAfter implements upstream.Resolver.
func (d *DNS) RetryAfter() time.Duration { return max(d.client.timeout, time.Second) }

// UnmarshalCaddyfile reads:
//
//	resolver [<address...>] [valid=<duration>] [ipv6=on|off] [timeout=<duration>]
func (d *DNS) UnmarshalCaddyfile(disp *caddyfile.Dispenser) error {
	disp.Next()
	var params []string
	for _, arg := range disp.RemainingArgs() {
		if strings.Contains(arg, "=") {
			params = append(params, arg)
			continue
		}
		if _, err := serverAddress(arg); err != nil {
			return disp.Errf("resolver: %v", err)
		}
		d.Addresses = append(d.Addresses, arg)
	}
	duration := func(dst *caddy.Duration) func(string) error {
		return func(v string) error {
			n, err := cfg.ParseDuration(v, time.Millisecond)
			*dst = caddy.Duration(n)
			return err
		}
	}
	table := cfg.Params{
		"valid":   {Set: duration(&d.Valid)},
		"timeout": {Set: duration(&d.Timeout)},
		"ipv6": {Set: func(v string) error {
			if v != "on" && v != "off" {
				return fmt.Errorf("unexpected %q: expected on or off", v)
			}
			d.IPv6 = v
			return nil
		}},
	}
	if err := table.Parse(params); err != nil {
		return disp.Errf("resolver: %v", err)
	}
	if disp.NextBlock(disp.Nesting()) {
		return disp.Err("resolver: unexpected block: everything stands on the line")
	}
	return nil
}

// Interface guards
var (
	_ upstream.Resolver     = (*DNS)(nil)
	_ caddy.Provisioner     = (*DNS)(nil)
	_ caddyfile.Unmarshaler = (*DNS)(nil)
)
