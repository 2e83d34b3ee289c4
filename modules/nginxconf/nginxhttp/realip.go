// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// RealIP is nginx's realip module: a trusted peer says for whom it asks.
type RealIP struct {
	// Addresses, networks and `unix:` that are believed.
	From []string `json:"from"`
	// The header field that holds the address, or `proxy_protocol`. Default:
	// X-Real-IP.
	Header string `json:"header,omitempty"`
	// Go on to the left in X-Forwarded-For while an address is trusted.
	Recursive bool `json:"recursive,omitempty"`

	nets []netip.Prefix
	unix bool
	done bool // provisioned: locations share it with those inside them
}

func (p *RealIP) provision() error {
	if p == nil || p.done {
		return nil
	}
	p.done = true
	if p.Header == "" {
		p.Header = "X-Real-IP"
	}
	for _, f := range p.From {
		if f == "unix:" {
			p.unix = true
			continue
		}
		n, err := netip.ParsePrefix(f)
		if err != nil {
			a, err := netip.ParseAddr(f)
			if err != nil {
				return fmt.Errorf("real_ip: from %q: expected an address, a network or unix: itself", f)
			}
			n = netip.PrefixFrom(a, a.BitLen())
		}
		p.nets = append(p.nets, n.Masked())
	}
	return nil
}

func (p *RealIP) trusts(a netip.Addr) bool {
	if !a.IsValid() {
		return p.unix
	}
	for _, n := range p.nets {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// apply replaces the client's address, once in a request.
func (p *RealIP) apply(st *state) {
	if p == nil || st.realip != "" || !p.trusts(clientAddr(st.r)) {
		return
	}
	address, ok := p.address(st)
	if !ok {
		return
	}
	st.realip = st.r.RemoteAddr
	st.r.RemoteAddr = address.String()
	if address.Port() == 0 {
		st.r.RemoteAddr = net.JoinHostPort(address.Addr().String(), "0")
	}
	caddyhttp.SetVar(st.r.Context(), caddyhttp.ClientIPVarKey, address.Addr().String())
}

// address is what the header says.
func (p *RealIP) address(st *state) (netip.AddrPort, bool) {
	if p.Header == "proxy_protocol" {
		return st.proxySource()
	}
	values := st.r.Header.Values(p.Header)
	if !strings.EqualFold(p.Header, "X-Forwarded-For") {
		if len(values) == 0 {
			return netip.AddrPort{}, false
		}
		values = values[:1]
	}
	list := strings.Split(strings.Join(values, ","), ",")
	var found netip.AddrPort
	ok := false
	for i := len(list) - 1; i >= 0; i-- {
		a, valid := parseAddr(strings.TrimSpace(list[i]))
		if !valid {
			break
		}
		found, ok = a, true
		if !p.Recursive || !p.trusts(a.Addr()) {
			break
		}
	}
	return found, ok
}

// proxySource is the client's address in the PROXY header.
func (st *state) proxySource() (netip.AddrPort, bool) {
	if st.conn == nil {
		return netip.AddrPort{}, false
	}
	h := st.conn.header.Load()
	if h == nil {
		return netip.AddrPort{}, false
	}
	a, ok := h.Source()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), ok
}

// parseAddr reads an address with or without a port.
func parseAddr(s string) (netip.AddrPort, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), 0), true
}
