// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// Server is the configuration of one peer. It is comparable and never
// changed in place.
type Server struct {
	// ID names the peer in its group.
	ID string
	// Address is what is dialled, as a Caddy network address.
	Address string
	// Name is the address as nginx prints it: "10.0.0.1:80", "unix:/run/a.sock".
	Name string
	// Line is the server string as written in the configuration; the points of
	// a consistent hash come from it.
	Line string
	// Route is the peer's name for sticky sessions; empty: none.
	Route string

	// Weight is at least 1.
	Weight int
	// MaxConns is the number of leases that may be open at once; 0: no limit.
	MaxConns int
	// MaxFails and FailTimeout are the parameters of passive health.
	MaxFails    int
	FailTimeout time.Duration

	Backup bool
	// Down is never selected. Drain is reached by a sticky hint only.
	Down  bool
	Drain bool

	// CloseAfter is how long the peer may finish what it holds once it is drained,
	// set down or removed; 0: no limit.
	CloseAfter time.Duration

	// SlowStart is the time in which a server that has come back, or was added
	// to running ones, gets from next to nothing to its whole weight; 0: at once.
	SlowStart time.Duration
	// Probe: once its time out is over, the server is not picked before the
	// front has reached it by itself (ProbeWanted, Group.Probed).
	Probe bool
}

// usable reports whether the server counts as a possible try.
func (s *Server) usable() bool { return !s.Down && !s.Drain }
