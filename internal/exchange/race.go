// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import "time"

// Racer is an Exchanger that honours Attempt.Race and Attempt.Dialed.
type Racer interface {
	Exchanger

	// ConnectLimit is how long connecting may take.
	ConnectLimit() time.Duration
}

// Race decides how long an exchange waits for a new connection.
type Race interface {
	// Wait is called when the exchange needs a connection, which is being made.
	// It returns true once that has ended, one way or the other. It returns
	// false if the exchange shall end with an error of kind Parked: then it has
	// parked p.
	Wait(a *Attempt, p Pending) bool

	// Connected is called each time that the exchange has a connection, just
	// before anything is sent.
	Connected(a *Attempt)
}

// Pending is a connection that is being made, whoever waits for it.
type Pending interface {
	// Done is closed when the connection is there or has failed.
	Done() <-chan struct{}

	// Park leaves the connection to whoever has f called when it is there, with
	// nil, or has failed. Nil says that Keep must be called, unless Attempt.Dialed
	// gives the connection to an exchange. f is called once, from a goroutine of
	// the transport's, or right away if it is over.
	Park(f func(*Error))

	// Keep puts the connection away for another request, or closes it.
	Keep()

	// Abort ends the attempt to connect. It does nothing to a connection.
	Abort()
}
