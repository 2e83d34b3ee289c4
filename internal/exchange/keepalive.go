// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"io"
	"time"
)

// Keepalive is a group's `keepalive` lines. A nil or zero field means that the
// line was not written.
type Keepalive struct {
	// Connections is the number of idle connections kept; 0 is `keepalive off`.
	Connections *int
	// Local keeps the connections of each handler apart.
	Local    bool
	Requests int
	Time     time.Duration
	Timeout  time.Duration
}

// Store is a group's state that outlives one configuration.
type Store interface {
	// Shared returns the object kept under key, made by create if there is
	// none. It is closed with the group's state, not with the configuration.
	Shared(key string, create func() io.Closer) io.Closer

	// OnRemove calls f, from any goroutine, with the dial address of a server
	// (caddy network address form) when no member of the group uses it any
	// more, until the returned function is called.
	OnRemove(f func(address string)) (stop func())
}

// Binder is a transport that wants to know the group it works for. Bind is
// called at most once, after the transport's Provision and before any
// request; without a group it is not called.
type Binder interface {
	Bind(store Store, settings Keepalive) error
}

// ConnStats counts the connections to one server.
type ConnStats struct {
	Address string // a Caddy network address
	Idle    int    // kept now
	Created uint64 // opened so far
	Reused  uint64 // requests that found one kept
}

// ConnCounter is implemented by transports that keep connections, and by what
// they keep in a Store.
type ConnCounter interface {
	// ConnStats returns one entry for each address, sorted.
	ConnStats() []ConnStats
}
