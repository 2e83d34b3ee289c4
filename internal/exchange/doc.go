// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package exchange is the contract between the two halves of an HTTP try: the
// next_upstream wrapper, which judges, and a transport, which moves bytes.
//
// http.RoundTripper cannot say what the wrapper must know: whether any of the
// request was sent, whether the server refused or the client left, when the
// connection was there, when the use of the server has ended. A transport
// that can say it implements [Exchanger]; over any other transport the wrapper
// guesses from the error and from httptrace.
package exchange
