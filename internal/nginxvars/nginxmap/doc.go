// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package nginxmap gives a text another text, as nginx's map does.
//
//	m, err := nginxmap.New([]nginxmap.Entry{
//		{Pattern: "db.example.com", Value: "postgres"},
//		{Pattern: "*.example.com", Value: "web"},
//		{Pattern: `~^(?<shard>\d+)\.`, Value: "shard-$shard"},
//		{Pattern: "default", Value: "none"},
//	}, true)
//	v := m.Lookup(serverName).Expand(variable)
//
// # Patterns
//
// They are tried in this order, whatever their order in the configuration:
//
//  1. exact text, without regard to the case of ASCII letters;
//  2. with hostnames: "*.example.com" (any name that ends in .example.com),
//     ".example.com" (the same and example.com itself), the longest first;
//  3. with hostnames: "www.example.*", the longest first;
//  4. regular expressions, ~ with and ~* without regard to case, in the order
//     of configuration;
//  5. "default"; without it the value is empty.
//
// A leading backslash makes an exact text of what follows: \default, \~tilde.
// With hostnames one dot at the end of the key is dropped first, for regular
// expressions too.
//
// # Regular expressions
//
// They are Go's: linear in time, so that a client cannot choose a name that
// takes long. Look-around and back references of PCRE are not there and are
// refused when the map is built. Text that is not UTF-8 is matched byte by byte
// against U+FFFD.
//
// # Values
//
// $1 to $9, $name and ${name} in a value stand for captures of the expression
// that matched; other names are left to the caller. A dollar sign before
// anything else is itself.
package nginxmap
