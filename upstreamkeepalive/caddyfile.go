// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddytls"
	"github.com/dustin/go-humanize"
)

// option is one line of the transport's block.
type option struct {
	min, max int    // number of arguments
	expected string // for errors
	set      func(t *Transport, args []string) bool
	// parse reads the line itself, for options that are modules.
	parse func(t *Transport, d *caddyfile.Dispenser) error
}

var optionTable = map[string]option{
	"keepalive":             {1, 2, "a number of connections, optionally followed by local, or off", setKeepalive, nil},
	"keepalive_requests":    {1, 1, "a number of requests, at least 1", setRequests, nil},
	"keepalive_time":        durationOption(func(t *Transport) *caddy.Duration { return &t.KeepaliveTime }),
	"keepalive_timeout":     durationOption(func(t *Transport) *caddy.Duration { return &t.KeepaliveTimeout }),
	"connect_timeout":       durationOption(func(t *Transport) *caddy.Duration { return &t.ConnectTimeout }),
	"send_timeout":          durationOption(func(t *Transport) *caddy.Duration { return &t.SendTimeout }),
	"read_timeout":          durationOption(func(t *Transport) *caddy.Duration { return &t.ReadTimeout }),
	"http_version":          {1, 1, "1.0 or 1.1 (for other versions use the http transport)", setVersion, nil},
	"response_header_limit": {1, 1, "a size between 1KiB and 16MiB", setHeaderLimit, nil},
	"bind":                  {1, 1, "an IP address, optionally with a port", setBind, nil},
	"proxy_protocol":        {1, 1, "v1 or v2", setProxyProtocol, nil},

	"tls":                      {0, 0, "no argument", func(*Transport, []string) bool { return true }, nil},
	"tls_server_name":          tlsOption(1, 1, "a host name", func(c *reverseproxy.TLSConfig, a []string) { c.ServerName = a[0] }),
	"tls_insecure_skip_verify": tlsOption(0, 0, "no argument", func(c *reverseproxy.TLSConfig, _ []string) { c.InsecureSkipVerify = true }),
	"tls_client_auth":          tlsOption(1, 2, "a name to automate a certificate for, or a certificate file and a key file", setClientAuth),
	"tls_curves":               tlsOption(1, math.MaxInt, "names of curves", func(c *reverseproxy.TLSConfig, a []string) { c.Curves = a }),
	"tls_except_ports":         tlsOption(1, math.MaxInt, "port numbers", func(c *reverseproxy.TLSConfig, a []string) { c.ExceptPorts = a }),
	"tls_timeout":              {1, 1, "a duration greater than 0, such as 10s", setTLSTimeout, nil},
	"tls_renegotiation":        {1, 1, "never, once or freely", setRenegotiation, nil},
	"tls_trust_pool":           {parse: parseTrustPool},
}

// UnmarshalCaddyfile sets t up from a block:
//
//	transport upstream_keepalive {
//	    keepalive <connections> [local] | off
//	    keepalive_requests <number>
//	    keepalive_time <duration>
//	    keepalive_timeout <duration>
//	    connect_timeout <duration>
//	    send_timeout <duration>
//	    read_timeout <duration>
//	    http_version 1.0|1.1
//	    response_header_limit <size>
//	    bind <address>
//	    proxy_protocol v1|v2
//	    tls
//	    tls_server_name <name>
//	    tls_insecure_skip_verify
//	    tls_trust_pool <module> ...
//	    tls_client_auth <name> | <certificate file> <key file>
//	    tls_timeout <duration>
//	    tls_curves <name...>
//	    tls_except_ports <port...>
//	    tls_renegotiation never|once|freely
//	}
func (t *Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the transport
	if d.NextArg() {
		return d.Errf("upstream_keepalive: unexpected %q: expected a block of options", d.Val())
	}
	seen := make(map[string]bool)
	for d.NextBlock(0) {
		name := d.Val()
		if seen[name] {
			return d.Errf("upstream_keepalive: %s is given twice: expected it once", name)
		}
		seen[name] = true
		known, err := t.UnmarshalOption(d)
		if err != nil {
			return err
		}
		if !known {
			return d.Errf("upstream_keepalive: unknown option %q: expected one of %s", name, strings.Join(OptionNames(), ", "))
		}
	}
	return nil
}

// OptionNames returns the names of all options, sorted.
func OptionNames() []string {
	names := make([]string, 0, len(optionTable))
	for name := range optionTable {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// UnmarshalOption parses the option that d stands at. It reports false, and
// consumes nothing, if it is none of this transport's: a shorthand can offer
// the options beside its own.
func (t *Transport) UnmarshalOption(d *caddyfile.Dispenser) (known bool, err error) {
	name := d.Val()
	o, ok := optionTable[name]
	if !ok {
		return false, nil
	}
	if strings.HasPrefix(name, "tls") && t.TLS == nil {
		t.TLS = new(reverseproxy.TLSConfig)
	}
	if o.parse != nil {
		return true, o.parse(t, d)
	}
	args := d.RemainingArgs()
	if len(args) < o.min || len(args) > o.max || !o.set(t, args) {
		return true, d.Errf("upstream_keepalive: %s %s: expected %s", name, quoted(args), o.expected)
	}
	return true, nil
}

func quoted(args []string) string {
	if len(args) == 0 {
		return "without an argument"
	}
	return strconv.Quote(strings.Join(args, " "))
}

func setKeepalive(t *Transport, args []string) bool {
	if args[0] == "off" {
		t.Keepalive = new(int)
		return len(args) == 1
	}
	n, ok := number(args[0])
	if !ok || len(args) == 2 && args[1] != "local" {
		return false
	}
	t.Keepalive, t.KeepaliveLocal = &n, len(args) == 2
	return true
}

func setRequests(t *Transport, args []string) bool {
	n, ok := number(args[0])
	t.KeepaliveRequests = n
	return ok && n > 0
}

func number(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}

func durationOption(field func(*Transport) *caddy.Duration) option {
	return option{1, 1, "a duration greater than 0, such as 60s", func(t *Transport, args []string) bool {
		return setDuration(field(t), args[0])
	}, nil}
}

func setDuration(to *caddy.Duration, s string) bool {
	d, err := caddy.ParseDuration(s)
	*to = caddy.Duration(d)
	return err == nil && d > 0 && d <= 10*365*24*time.Hour
}

func setVersion(t *Transport, args []string) bool {
	t.HTTPVersion = args[0]
	return args[0] == "1.0" || args[0] == "1.1"
}

func setHeaderLimit(t *Transport, args []string) bool {
	n, err := humanize.ParseBytes(args[0])
	if err != nil || n < 1<<10 || n > 16<<20 {
		return false
	}
	t.ResponseHeaderLimit = int(n)
	return true
}

func setBind(t *Transport, args []string) bool {
	t.BindAddress = args[0]
	_, err := bindAddr(args[0])
	return err == nil
}

func setProxyProtocol(t *Transport, args []string) bool {
	t.ProxyProtocol = args[0]
	return args[0] == "v1" || args[0] == "v2"
}

func tlsOption(min, max int, expected string, set func(*reverseproxy.TLSConfig, []string)) option {
	return option{min, max, expected, func(t *Transport, args []string) bool {
		set(t.TLS, args)
		return true
	}, nil}
}

func setClientAuth(c *reverseproxy.TLSConfig, args []string) {
	if len(args) == 1 {
		c.ClientCertificateAutomate = args[0]
		return
	}
	c.ClientCertificateFile, c.ClientCertificateKeyFile = args[0], args[1]
}

func setTLSTimeout(t *Transport, args []string) bool {
	return setDuration(&t.TLS.HandshakeTimeout, args[0])
}

func setRenegotiation(t *Transport, args []string) bool {
	t.TLS.Renegotiation = args[0]
	return args[0] == "never" || args[0] == "once" || args[0] == "freely"
}

func parseTrustPool(t *Transport, d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Err("upstream_keepalive: tls_trust_pool without an argument: expected the name of a tls.ca_pool.source module, such as file")
	}
	name := d.Val()
	mod, err := caddyfile.UnmarshalModule(d, "tls.ca_pool.source."+name)
	if err != nil {
		return err
	}
	ca, ok := mod.(caddytls.CA)
	if !ok {
		return d.Errf("upstream_keepalive: tls_trust_pool %q: expected a module that is a source of certificates", name)
	}
	t.TLS.CARaw = caddyconfig.JSONModuleObject(ca, "provider", name, nil)
	return nil
}

var _ caddyfile.Unmarshaler = (*Transport)(nil)
