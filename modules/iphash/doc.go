// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package iphash binds clients to servers by their address, as nginx's ip_hash
// does, pick for pick: the first three octets of IPv4, all of IPv6. The address
// is the one that the front gives (in HTTP, Caddy's client IP); an IPv4 address
// written as IPv6 has sixteen octets here as there.
//
// The backup servers, a group with one server and sessions that have met 21
// peers that could not be picked are served by round robin. A pick is
// logarithmic in the number of servers where their weights differ and constant
// where they do not.
package iphash
