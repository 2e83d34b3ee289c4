// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// number is an address as an integer; one of IPv4 is below 2^32.
type number struct{ hi, lo uint64 }

func numberOf(a netip.Addr) number {
	if a.Is4() {
		b := a.As4()
		return number{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n number) cmp(o number) int {
	return cmp.Or(cmp.Compare(n.hi, o.hi), cmp.Compare(n.lo, o.lo))
}

// plusMask sets the low so many bits.
func (n number) plusMask(low int) number {
	if low >= 64 {
		return number{n.hi | (1<<(low-64) - 1), ^uint64(0)}
	}
	return number{n.hi, n.lo | (1<<low - 1)}
}

// next returns n+1, false if that does not fit the size of an address.
func (n number) next(size int) (number, bool) {
	lo, carry := bits.Add64(n.lo, 1, 0)
	hi, over := bits.Add64(n.hi, 0, carry)
	if over != 0 || size == 32 && lo > 0xffffffff {
		return number{}, false
	}
	return number{hi, lo}, true
}

// spans maps addresses to values: the addresses from starts[i] up to the next
// start have values[i]. Before the first start there is nothing.
type spans struct {
	starts []number
	values []int32
}

// add begins a span. Starts come in ascending order; a second span with the
// same start replaces the first.
func (s *spans) add(start number, value int32) {
	if n := len(s.starts); n > 0 && s.starts[n-1] == start {
		s.starts, s.values = s.starts[:n-1], s.values[:n-1]
	}
	if n := len(s.starts); n > 0 && s.values[n-1] == value {
		return
	}
	s.starts = append(s.starts, start)
	s.values = append(s.values, value)
}

func (s *spans) find(a number) int32 {
	lo, hi := 0, len(s.starts)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m := &s.starts[mid]; m.hi > a.hi || m.hi == a.hi && m.lo > a.lo {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return none
	}
	return s.values[lo-1]
}
