// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package geo gives a client address a value, as nginx's geo does.
//
//	t, warnings, err := geo.New(geo.CIDR, []geo.Entry{
//		{Network: "default", Value: "zz"},
//		{Network: "10.0.0.0/8", Value: "lan"},
//		{Network: "2001:db8::/32", Value: "doc"},
//	})
//	value, ok := t.Lookup(addr)
//
// In mode CIDR the longest prefix that holds the address wins. A later entry
// for the same network overwrites an earlier one; "default" stands for
// 0.0.0.0/0 and ::/0; a delete entry takes a network out, so that a shorter
// prefix shows again. Host bits of a network do not matter.
//
// In mode Ranges the networks are IPv4 ranges, "10.0.0.0-10.0.20.255". A later
// range that lies within an earlier one wins for its part, an equal one
// replaces it, any other overlap is an error. As in nginx this is judged per
// block of 65536 addresses, into which long ranges are cut.
//
// Addresses that are not IP, a unix socket's or unreadable text, are looked up
// as 255.255.255.255, and so are IPv6 addresses in mode Ranges. An IPv4 address
// that is mapped to IPv6 is looked up as IPv4.
//
// A table is flat: the sorted starts of the spans of addresses that share a
// value. A lookup is one binary search and allocates nothing.
package geo
