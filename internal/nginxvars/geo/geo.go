// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Mode says how networks are written and which one wins.
type Mode uint8

const (
	CIDR Mode = iota
	Ranges
)

// Entry is one line of a geo block.
type Entry struct {
	// Network is an address, a CIDR, in mode Ranges a range; or "default".
	Network string `json:"network"`
	// Value is what addresses of the network get, literally.
	Value string `json:"value,omitempty"`
	// Delete takes the network out instead; Value is not used.
	Delete bool `json:"delete,omitempty"`
}

const defaultNetwork = "default"

// Table is the result of New. It is read-only.
type Table struct {
	mode     Mode
	v4, v6   spans
	values   []string
	fallback int32 // index of the default in mode Ranges; none without
}

// none is the index of no value.
const none int32 = -1

// New builds a table from the lines in order. The warnings are lines that are
// accepted but do less than they seem to.
func New(mode Mode, entries []Entry) (t *Table, warnings []string, err error) {
	t = &Table{mode: mode, fallback: none}
	b := builder{table: t, index: map[string]int32{}}
	if mode == Ranges {
		err = b.ranges(entries)
	} else {
		err = b.cidrs(entries)
	}
	if err != nil {
		return nil, nil, err
	}
	return t, b.warnings, nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Lookup returns the value of an address and whether it has one. The zero
// address stands for a unix socket.
func (t *Table) Lookup(a netip.Addr) (string, bool) {
	a = a.Unmap()
	if !a.IsValid() || t.mode == Ranges && a.Is6() {
		a = broadcast
	}
	i := none
	if a.Is4() {
		i = t.v4.find(numberOf(a))
	} else {
		i = t.v6.find(numberOf(a))
	}
	if i == none {
		if i = t.fallback; i == none {
			return "", false
		}
	}
	return t.values[i], true
}

// LookupText is Lookup for an address in a variable. Text that is not an
// address is looked up as 255.255.255.255.
func (t *Table) LookupText(s string) (string, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		a = netip.Addr{}
	}
	return t.Lookup(a)
}

type builder struct {
	table    *Table
	index    map[string]int32 // of values
	warnings []string
}

func (b *builder) warn(format string, args ...any) {
	b.warnings = append(b.warnings, "geo: "+fmt.Sprintf(format, args...))
}

func (b *builder) value(s string) int32 {
	i, ok := b.index[s]
	if !ok {
		i = int32(len(b.table.values))
		b.index[s] = i
		b.table.values = append(b.table.values, s)
	}
	return i
}

func (b *builder) cidrs(entries []Entry) error {
	nets := map[netip.Prefix]int32{}
	for _, e := range entries {
		prefixes, err := parseNetwork(e.Network)
		if err != nil {
			return err
		}
		for _, p := range prefixes {
			_, exists := nets[p]
			switch {
			case e.Delete && !exists:
				b.warn("no network %q to delete", e.Network)
			case e.Delete:
				delete(nets, p)
			default:
				if exists {
					b.warn("duplicate network %q: the later value counts", e.Network)
				}
				nets[p] = b.value(e.Value)
			}
		}
	}
	b.table.v4 = flatten(nets, 32)
	b.table.v6 = flatten(nets, 128)
	return nil
}

func parseNetwork(s string) ([]netip.Prefix, error) {
	if s == defaultNetwork {
		return []netip.Prefix{
			netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0),
		}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return []netip.Prefix{p.Masked()}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return nil, fmt.Errorf("geo: bad network %q: want an address, a CIDR or default", s)
	}
	return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, nil
}

// flatten turns the nested prefixes of one family, whose addresses have so
// many bits, into spans.
func flatten(nets map[netip.Prefix]int32, bits int) spans {
	type network struct {
		first, last number
		value       int32
	}
	var list []network
	for p, v := range nets {
		if p.Addr().BitLen() == bits {
			first := numberOf(p.Addr())
			list = append(list, network{first, first.plusMask(bits - p.Bits()), v})
		}
	}
	// Outer networks before the ones within.
	slices.SortFunc(list, func(a, b network) int {
		return cmp.Or(a.first.cmp(b.first), b.last.cmp(a.last))
	})
	var s spans
	var open []network // the networks around the current place, inner last
	closeUntil := func(to number, all bool) {
		for len(open) > 0 && (all || open[len(open)-1].last.cmp(to) < 0) {
			ended := open[len(open)-1]
			open = open[:len(open)-1]
			around := none
			if len(open) > 0 {
				around = open[len(open)-1].value
			}
			if next, ok := ended.last.next(bits); ok {
				s.add(next, around)
			}
		}
	}
	for _, n := range list {
		closeUntil(n.first, false)
		open = append(open, n)
		s.add(n.first, n.value)
	}
	closeUntil(number{}, true)
	return s
}
