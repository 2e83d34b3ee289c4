// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// part is the piece of a range that lies in one block of 65536 addresses.
type part struct {
	first, last uint16
	value       int32
}

// block holds the parts of one block in ascending order, without overlap.
type block []part

func (b *builder) ranges(entries []Entry) error {
	blocks := map[uint16]*block{}
	for _, e := range entries {
		if e.Network == defaultNetwork {
			b.rangeDefault(e)
			continue
		}
		first, last, err := parseRange(e.Network)
		if err != nil {
			return err
		}
		var value int32
		if !e.Delete {
			value = b.value(e.Value)
		}
		found, replaced := false, false
		for hi := first >> 16; hi <= last>>16; hi++ {
			p := part{uint16(max(first, hi<<16)), uint16(min(last, hi<<16|0xffff)), value}
			bl := blocks[uint16(hi)]
			if bl == nil {
				bl = &block{}
				blocks[uint16(hi)] = bl
			}
			if e.Delete {
				found = bl.remove(p) || found
				continue
			}
			same, ok := bl.insert(p)
			if !ok {
				return fmt.Errorf("geo: range %q overlaps an earlier one in part: want disjoint ranges, or a range within an earlier one", e.Network)
			}
			replaced = replaced || same
		}
		if e.Delete && !found {
			b.warn("no range %q to delete", e.Network)
		}
		if replaced {
			b.warn("duplicate range %q: the later value counts", e.Network)
		}
	}
	b.table.v4 = join(blocks)
	return nil
}

func (b *builder) rangeDefault(e Entry) {
	switch {
	case e.Delete:
		b.table.fallback = none
	default:
		if b.table.fallback != none {
			b.warn("duplicate default: the later value counts")
		}
		b.table.fallback = b.value(e.Value)
	}
}

func parseRange(s string) (first, last uint32, err error) {
	from, to, ok := strings.Cut(s, "-")
	a, err1 := netip.ParseAddr(from)
	z, err2 := netip.ParseAddr(to)
	if !ok || err1 != nil || err2 != nil || !a.Is4() || !z.Is4() {
		return 0, 0, fmt.Errorf("geo: bad range %q: want two IPv4 addresses, as 10.0.0.0-10.0.20.255, or default", s)
	}
	if z.Less(a) {
		return 0, 0, fmt.Errorf("geo: bad range %q: the first address is above the last", s)
	}
	return uint32(numberOf(a).lo), uint32(numberOf(z).lo), nil
}

// insert adds a part. same: it replaced an equal one. Not ok: it overlaps
// another part without lying within it.
func (b *block) insert(p part) (same, ok bool) {
	// The first part that does not end before p.
	i, _ := slices.BinarySearchFunc(*b, p.first, func(q part, first uint16) int {
		return int(q.last) - int(first)
	})
	if i == len(*b) || (*b)[i].first > p.last {
		*b = slices.Insert(*b, i, p)
		return false, true
	}
	old := (*b)[i]
	if old.first > p.first || old.last < p.last {
		return false, false
	}
	pieces := make([]part, 0, 3)
	if old.first < p.first {
		pieces = append(pieces, part{old.first, p.first - 1, old.value})
	}
	pieces = append(pieces, p)
	if old.last > p.last {
		pieces = append(pieces, part{p.last + 1, old.last, old.value})
	}
	*b = slices.Replace(*b, i, i+1, pieces...)
	return len(pieces) == 1, true
}

// remove takes out the part with these bounds.
func (b *block) remove(p part) bool {
	i := slices.IndexFunc(*b, func(q part) bool { return q.first == p.first && q.last == p.last })
	if i < 0 {
		return false
	}
	*b = slices.Delete(*b, i, i+1)
	return true
}

func join(blocks map[uint16]*block) spans {
	var s spans
	for _, hi := range slices.Sorted(maps.Keys(blocks)) {
		for _, p := range *blocks[hi] {
			base := uint64(hi) << 16
			s.add(number{lo: base | uint64(p.first)}, p.value)
			if next, ok := (number{lo: base | uint64(p.last)}).next(32); ok {
				s.add(next, none)
			}
		}
	}
	return s
}
