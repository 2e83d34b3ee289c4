// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package access decides by client address whether a connection may go on, as
// nginx's allow and deny do: the rules are tried in order, the first that
// matches decides, and without a match the connection is allowed.
//
//	rules, err := access.New([]access.Rule{
//		{Allow: true, Match: "10.0.0.0/8"},
//		{Allow: true, Match: "unix:"},
//		{Match: "all"},
//	})
//	if !rules.Allowed(addr) { ... }
//
// A client that comes as a mapped IPv6 address is tested against the IPv4 rules
// if there are any, and against the IPv6 rules otherwise.
package access

import (
	"fmt"
	"net/netip"
)

// Rule is one line of allow or deny.
type Rule struct {
	// Allow: what matches is allowed; else it is denied.
	Allow bool `json:"allow,omitempty"`
	// Match is an address, a CIDR, "unix:" or "all". Host bits of a CIDR do
	// not matter.
	Match string `json:"match"`
}

type prefixRule struct {
	prefix netip.Prefix
	allow  bool
}

// Rules is the result of New. It is read-only.
type Rules struct {
	v4, v6 []prefixRule
	unix   []bool // allow, of the rules for unix sockets
}

var (
	all4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	all6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
)

// New sorts the rules by kind of client.
func New(rules []Rule) (*Rules, error) {
	r := &Rules{}
	for _, rule := range rules {
		switch rule.Match {
		case "all":
			r.v4 = append(r.v4, prefixRule{all4, rule.Allow})
			r.v6 = append(r.v6, prefixRule{all6, rule.Allow})
			r.unix = append(r.unix, rule.Allow)
			continue
		case "unix:":
			r.unix = append(r.unix, rule.Allow)
			continue
		}
		p, err := parsePrefix(rule.Match)
		if err != nil {
			return nil, err
		}
		if p.Addr().Is4() {
			r.v4 = append(r.v4, prefixRule{p, rule.Allow})
		} else {
			r.v6 = append(r.v6, prefixRule{p, rule.Allow})
		}
	}
	return r, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf(`access: bad match %q: want an address, a CIDR, "unix:" or "all"`, s)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// Allowed reports whether a client may go on. The zero address stands for a
// unix socket.
func (r *Rules) Allowed(client netip.Addr) bool {
	switch {
	case !client.IsValid():
		return len(r.unix) == 0 || r.unix[0]
	case client.Is4() || client.Is4In6() && len(r.v4) > 0:
		return first(r.v4, client.Unmap())
	}
	return first(r.v6, client.WithZone(""))
}

func first(rules []prefixRule, a netip.Addr) bool {
	for i := range rules {
		if rules[i].prefix.Contains(a) {
			return rules[i].allow
		}
	}
	return true
}
