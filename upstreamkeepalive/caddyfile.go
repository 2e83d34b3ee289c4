// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

// table has everything that may stand in the block.
func (t *Transport) table() cfg.Options {
	return cfg.Options{
		"keepalive":             t.parseKeepalive,
		"keepalive_requests":    cfg.Int(&t.KeepaliveRequests, 1),
		"keepalive_time":        cfg.Duration(&t.KeepaliveTime),
		"keepalive_timeout":     cfg.Duration(&t.KeepaliveTimeout),
		"connect_timeout":       cfg.Duration(&t.ConnectTimeout),
		"send_timeout":          cfg.Duration(&t.SendTimeout),
		"read_timeout":          cfg.Duration(&t.ReadTimeout),
		"http_version":          cfg.Word(&t.HTTPVersion, "1.0", "1.1"),
		"response_header_limit": t.parseHeaderLimit,
		"bind":                  t.parseBind,
		"proxy_protocol":        cfg.Word(&t.ProxyProtocol, "v1", "v2"),

		"tls":                      t.tlsOption(func(*TLS) cfg.Setter { return nothing(nil) }),
		"tls_server_name":          t.tlsOption(func(c *TLS) cfg.Setter { return cfg.String(&c.ServerName) }),
		"tls_insecure_skip_verify": t.tlsOption(func(c *TLS) cfg.Setter { return nothing(&c.InsecureSkipVerify) }),
		"tls_client_auth":          t.tlsOption(clientAuth),
		"tls_curves":               t.tlsOption(func(c *TLS) cfg.Setter { return c.ParseCurves }),
		"tls_except_ports":         t.tlsOption(func(c *TLS) cfg.Setter { return c.ParseExceptPorts }),
		"tls_timeout":              t.tlsOption(func(c *TLS) cfg.Setter { return cfg.Duration(&c.HandshakeTimeout) }),
		"tls_renegotiation": t.tlsOption(func(c *TLS) cfg.Setter {
			return cfg.Word(&c.Renegotiation, "never", "once", "freely")
		}),
		"tls_trust_pool": t.tlsOption(trustPool),
		"tls_crl":        t.tlsOption(func(c *TLS) cfg.Setter { return cfg.Strings(&c.CRLFiles) }),

		"tls_protocols":             t.tlsOption(func(c *TLS) cfg.Setter { return c.ParseProtocols }),
		"tls_no_session_resumption": t.tlsOption(func(c *TLS) cfg.Setter { return nothing(&c.NoSessionResumption) }),
	}
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
//	    tls_crl <file...>
//	    tls_protocols <min> [<max>]
//	    tls_no_session_resumption
//	    tls_client_auth <name> | <certificate file> <key file> [<password file>]
//	    tls_timeout <duration>
//	    tls_curves <name...>
//	    tls_except_ports <port...>
//	    tls_renegotiation never|once|freely
//	}
func (t *Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the transport
	if d.NextArg() {
		return d.Errf("transport upstream_keepalive: unexpected %q: expected a block of options", d.Val())
	}
	options := t.table()
	given := options.Record()
	if err := options.Block(d, "transport upstream_keepalive", nil); err != nil {
		return err
	}
	if option, err := t.Check(); err != nil {
		return given.Errf(option, "transport upstream_keepalive: %v", err)
	}
	return nil
}

// OptionNames returns the names of all options, sorted.
func OptionNames() []string {
	return slices.Sorted(maps.Keys(new(Transport).table()))
}

// UnmarshalOption parses the option that d stands at. It reports false, and
// consumes nothing, if it is none of this transport's: a shorthand can offer
// the options beside its own.
func (t *Transport) UnmarshalOption(d *caddyfile.Dispenser) (known bool, err error) {
	set, ok := t.table()[d.Val()]
	if !ok {
		return false, nil
	}
	return true, set(d)
}

func (t *Transport) parseKeepalive(d *caddyfile.Dispenser) error {
	const expected = "expected a number of connections, optionally followed by local, or off"
	args := d.RemainingArgs()
	switch {
	case len(args) == 0 || len(args) > 2:
		return d.Errf("keepalive: got %d arguments, %s", len(args), expected)
	case args[0] == "off" && len(args) == 1:
		t.Keepalive = new(int)
		return nil
	case len(args) == 2 && args[1] != "local":
		return d.Errf("keepalive: unexpected %q: %s", args[1], expected)
	case args[0] == "off":
		return d.Errf("keepalive: unexpected %q after off: %s", args[1], expected)
	}
	n, err := cfg.ParseInt(args[0], 0)
	if err != nil {
		return d.Errf("keepalive: %v", err)
	}
	t.Keepalive, t.KeepaliveLocal = &n, len(args) == 2
	return nil
}

func (t *Transport) parseHeaderLimit(d *caddyfile.Dispenser) error {
	var n int64
	if err := cfg.Size(&n, minHeaderLimit)(d); err != nil {
		return err
	}
	if n > maxHeaderLimit {
		return d.Errf("response_header_limit: %s is too large: expected at most 16MiB", d.Val())
	}
	t.ResponseHeaderLimit = int(n)
	return nil
}

func (t *Transport) parseBind(d *caddyfile.Dispenser) error {
	if err := cfg.String(&t.BindAddress)(d); err != nil {
		return err
	}
	if _, err := bindAddr(t.BindAddress); err != nil {
		return d.Errf("%v: expected an IP address, optionally with a port", err)
	}
	return nil
}

// tlsOption is an option that means TLS by being there.
func (t *Transport) tlsOption(set func(*TLS) cfg.Setter) cfg.Setter {
	return func(d *caddyfile.Dispenser) error {
		if t.TLS == nil {
			t.TLS = new(TLS)
		}
		return set(t.TLS)(d)
	}
}

// nothing is an option without arguments, which sets flag.
func nothing(flag *bool) cfg.Setter {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		if args := d.RemainingArgs(); len(args) > 0 {
			return d.Errf("%s: unexpected %q: expected no argument", name, args[0])
		}
		if flag != nil {
			*flag = true
		}
		return nil
	}
}

func clientAuth(c *TLS) cfg.Setter {
	return func(d *caddyfile.Dispenser) error {
		switch args := d.RemainingArgs(); len(args) {
		case 1:
			c.ClientCertificateAutomate = args[0]
		case 2:
			c.ClientCertificateFile, c.ClientCertificateKeyFile = args[0], args[1]
		case 3:
			c.ClientCertificateFile, c.ClientCertificateKeyFile, c.ClientCertificatePasswordFile = args[0], args[1], args[2]
		default:
			return d.Errf("tls_client_auth: got %d arguments, expected a name to automate a certificate for, or a certificate file, "+
				"a key file and, if the key is encrypted, a file with passwords", len(args))
		}
		return nil
	}
}

func trustPool(c *TLS) cfg.Setter {
	return func(d *caddyfile.Dispenser) error {
		name, mod, err := cfg.Module(d, "tls_trust_pool", "tls.ca_pool.source", "source of certificates")
		if err != nil {
			return err
		}
		ca, ok := mod.(caddytls.CA)
		if !ok {
			return d.Errf("tls_trust_pool: unexpected %q: expected a source of certificates", name)
		}
		c.CARaw = caddyconfig.JSONModuleObject(ca, "provider", name, nil)
		return nil
	}
}

var _ caddyfile.Unmarshaler = (*Transport)(nil)
