// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package splitclients gives each key a value so that the values get fixed
// shares of the keys, as nginx's split_clients does:
//
//	t, err := splitclients.New([]splitclients.Part{
//		{Share: "0.5%", Value: ".one"},
//		{Share: "2.0%", Value: ".two"},
//		{Share: "*", Value: ""},
//	})
//	v := t.Lookup(clientAddress + "AAA")
//
// The key is hashed with the 32 bit MurmurHash2, seed 0, and the space of
// hashes is cut into parts in the order of configuration: a share of P percent
// ends trunc(P*100 * (2^32-1) / 10000) after the part before. The same key has
// the same value on every machine, nginx's included.
package splitclients

import (
	"errors"
	"fmt"
	"strings"
)

// Part is one value and its share: a percentage with at most two decimals, as
// "51.2%", or "*" for the rest, which is the last part.
type Part struct {
	Share string `json:"share"`
	Value string `json:"value"`
}

// Table is the result of New. It is read-only.
type Table struct {
	limits []uint32 // exclusive upper ends of the parts' hashes, ascending
	values []string // one more than limits: the last is the rest's
}

// full is a share of 100 percent in hundredths of a percent.
const full = 10000

// New checks the parts: percentages above zero, no more than 100 in all, "*"
// last if at all.
func New(parts []Part) (*Table, error) {
	if len(parts) == 0 {
		return nil, errors.New("splitclients: no parts")
	}
	t := &Table{}
	var sum, limit uint64
	rest := ""
	for i, p := range parts {
		if p.Share == "*" {
			if i != len(parts)-1 {
				return nil, errors.New(`splitclients: "*" must be the last part`)
			}
			rest = p.Value
			break
		}
		share, err := parseShare(p.Share)
		if err != nil {
			return nil, err
		}
		if sum += share; sum > full {
			return nil, fmt.Errorf("splitclients: %q brings the shares to more than 100%%", p.Share)
		}
		limit += share * 0xffffffff / full
		t.limits = append(t.limits, uint32(limit))
		t.values = append(t.values, p.Value)
	}
	t.values = append(t.values, rest)
	return t, nil
}

// parseShare returns hundredths of a percent.
func parseShare(s string) (uint64, error) {
	bad := fmt.Errorf(`splitclients: bad share %q: want a percentage with up to two decimals above 0%%, as "0.5%%", or "*"`, s)
	number, ok := strings.CutSuffix(s, "%")
	if !ok {
		return 0, bad
	}
	whole, fraction, _ := strings.Cut(number, ".")
	if whole == "" || len(whole) > 3 || len(fraction) > 2 {
		return 0, bad
	}
	for len(fraction) < 2 {
		fraction += "0"
	}
	var n uint64
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' {
			return 0, bad
		}
		n = n*10 + uint64(c-'0')
	}
	if n == 0 || n > full {
		return 0, bad
	}
	return n, nil
}

// Lookup returns the value of a key, empty if no part has it and there is no
// part for the rest.
func (t *Table) Lookup(key string) string {
	h := murmur2(key)
	for i, limit := range t.limits {
		if h < limit {
			return t.values[i]
		}
	}
	return t.values[len(t.limits)]
}

// murmur2 is Austin Appleby's MurmurHash2 (public domain) with seed 0.
func murmur2(s string) uint32 {
	const m = 0x5bd1e995
	h := uint32(len(s))
	for ; len(s) >= 4; s = s[4:] {
		k := uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	switch len(s) {
	case 3:
		h ^= uint32(s[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(s[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(s[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
