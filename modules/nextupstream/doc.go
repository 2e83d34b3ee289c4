// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package nextupstream is the transport `next_upstream`: nginx's
// proxy_next_upstream around any transport of Caddy's reverse_proxy.
//
// It sends each try to the server that the selection policy chose, tells the
// group what became of it, and decides whether the next server is asked. What
// decides is internal/peer, which does not know HTTP's proxy loop; this package
// translates between the two.
//
//	reverse_proxy {
//		lb_policy upstream app
//		transport next_upstream {
//			conditions error timeout http_502
//			tries 3
//			timeout 10s
//			transport upstream_keepalive {
//				connect_timeout 2s
//			}
//		}
//	}
//
// # Results
//
// Caddy's loop goes on to the next try only after a DialError (all other errors
// are excluded by a matcher that matches nothing), so a round trip returns one
// of: a response; a DialError, to be asked again; an [Error], which becomes 502
// or 504; context.Canceled, when the client has gone (499); or the error of the
// client's own body, as it is.
//
// # Request bodies
//
// As nginx does, the whole body is read before a server is chosen, in memory
// and then in a temporary file, so that a retry can send it again. Bodies that
// are not buffered are sent once: after any of it was read, no other server is
// asked.
//
// Handlers that run after this one in the same request, in handle_response or
// handle_errors, get the buffered body as well, as after nginx's internal
// redirects. A body that was sent and not buffered is an error there (500), and
// never taken for an empty one.
package nextupstream
