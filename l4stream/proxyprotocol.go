// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
)

func init() {
	caddy.RegisterModule(ProxyProtocol{})
	caddy.RegisterModule(RealIP{})
}

// ProxyProtocol reads a PROXY header, version 1 or 2, at the start of a
// connection. What it says is in {stream.proxy_protocol_addr} and the like; the
// client's address changes only through realip.
type ProxyProtocol struct {
	// Close connections that do not begin with a header. Without it, they go on
	// without one.
	Require bool `json:"require,omitempty"`

	// The addresses and networks whose headers are believed; `unix` for unix
	// sockets. A header from others ends the session. Default: all.
	Trusted []string `json:"trusted,omitempty"`

	// How long to wait for the header. Default: 30s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	trusted *networks
}

// CaddyModule returns the Caddy module information.
func (ProxyProtocol) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.proxy_protocol", New: func() caddy.Module { return new(ProxyProtocol) }}
}

// Provision checks the options.
func (p *ProxyProtocol) Provision(caddy.Context) error {
	if p.Timeout < 0 {
		return fmt.Errorf("timeout %s: must not be negative", time.Duration(p.Timeout))
	}
	if p.Timeout == 0 {
		p.Timeout = caddy.Duration(30 * time.Second)
	}
	var err error
	if len(p.Trusted) > 0 {
		p.trusted, err = parseNetworks(p.Trusted)
	}
	return err
}

// Phase implements Handler.
func (*ProxyProtocol) Phase() Phase { return PostAccept }

// Handle implements Handler.
func (p *ProxyProtocol) Handle(s *Session) error {
	if s.header != nil {
		return p.believe(s) // read for the default server of the address
	}
	if s.udp != nil {
		return p.readDatagramHeader(s)
	}
	_ = s.Conn.SetReadDeadline(time.Now().Add(time.Duration(p.Timeout)))
	defer func() { _ = s.Conn.SetReadDeadline(time.Time{}) }()
	for {
		var err error
		if len(s.preread) > 0 {
			var header proxyproto.Header
			var n int
			if header, n, err = proxyproto.Parse(s.preread); err == nil {
				return p.accept(s, header, n)
			}
			switch {
			case errors.Is(err, proxyproto.ErrIncomplete):
			case p.Require:
				return endWith(StatusBadRequest, "PROXY header required: %w", err)
			default:
				return nil
			}
		}
		switch err := s.peek(proxyproto.MaxHeader); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !p.Require:
			return nil // a client that waits for the server to speak
		default:
			return endWith(StatusBadRequest, "reading the PROXY header: %w", err)
		}
	}
}

func (p *ProxyProtocol) believe(s *Session) error {
	if p.trusted != nil && !p.trusted.contains(s.peer) {
		return endWith(StatusBadRequest, "PROXY header from %s, which is not trusted", addrText(s.peer))
	}
	return nil
}

func (p *ProxyProtocol) accept(s *Session, header proxyproto.Header, n int) error {
	if err := p.believe(s); err != nil {
		return err
	}
	header.TLVs = append([]byte(nil), header.TLVs...)
	s.header = &header
	if s.udp != nil {
		s.preread = s.preread[n:] // the batch's memory, read once
		return nil
	}
	s.preread = append(s.preread[:0], s.preread[n:]...)
	return nil
}

// UnmarshalCaddyfile reads:
//
//	proxy_protocol [require] {
//	    trusted <network...>
//	    timeout <duration>
//	}
func (p *ProxyProtocol) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		if d.Val() != "require" {
			return d.Errf("proxy_protocol: unexpected argument %q: expected require", d.Val())
		}
		p.Require = true
	}
	return cfg.Options{
		"trusted": networkList(&p.Trusted),
		"timeout": cfg.Duration(&p.Timeout),
	}.Block(d, "proxy_protocol", nil)
}

// RealIP replaces the client's address by the one in the PROXY header, if the
// connection comes from a trusted address.
type RealIP struct {
	// The addresses and networks that are trusted; `unix` for unix sockets.
	From []string `json:"from"`

	from *networks
}

// CaddyModule returns the Caddy module information.
func (RealIP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.realip", New: func() caddy.Module { return new(RealIP) }}
}

// Provision checks the options.
func (r *RealIP) Provision(caddy.Context) error {
	if len(r.From) == 0 {
		return errors.New("from: expected one or more trusted networks")
	}
	var err error
	r.from, err = parseNetworks(r.From)
	return err
}

// Phase implements Handler.
func (*RealIP) Phase() Phase { return PostAccept }

// Handle implements Handler.
func (r *RealIP) Handle(s *Session) error {
	if s.header == nil || !r.from.contains(s.peer) {
		return nil
	}
	if addr, ok := s.header.Source(); ok {
		s.client = proxyproto.Endpoint{Addr: netip.AddrPortFrom(addr.Addr().WithZone(""), addr.Port())}
	}
	return nil
}

// UnmarshalCaddyfile reads `realip <network...>`.
func (r *RealIP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if err := networkList(&r.From)(d); err != nil {
		return err
	}
	return cfg.NoBlock(d, "realip")
}

// networkList reads one or more networks.
func networkList(dst *[]string) cfg.Setter {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		if err := cfg.Strings(dst)(d); err != nil {
			return err
		}
		if _, err := parseNetworks(*dst); err != nil {
			return d.Errf("%s: %v", name, err)
		}
		return nil
	}
}

// networks is a set of networks and, maybe, unix sockets.
type networks struct {
	prefixes []netip.Prefix
	unix     bool
}

func parseNetworks(list []string) (*networks, error) {
	n := &networks{}
	for _, text := range list {
		if text == "unix" || text == "unix:" {
			n.unix = true
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, addrErr := netip.ParseAddr(text)
			if addrErr != nil {
				return nil, fmt.Errorf("%q is not a network: expected an address, a CIDR or unix", text)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		n.prefixes = append(n.prefixes, prefix.Masked())
	}
	return n, nil
}

func (n *networks) contains(e proxyproto.Endpoint) bool {
	if !e.Addr.IsValid() {
		return n.unix
	}
	addr := e.Addr.Addr().Unmap()
	for _, p := range n.prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Interface guards
var (
	_ Handler               = (*ProxyProtocol)(nil)
	_ caddy.Provisioner     = (*ProxyProtocol)(nil)
	_ caddyfile.Unmarshaler = (*ProxyProtocol)(nil)
	_ Handler               = (*RealIP)(nil)
	_ caddy.Provisioner     = (*RealIP)(nil)
	_ caddyfile.Unmarshaler = (*RealIP)(nil)
)
