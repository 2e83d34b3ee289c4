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
// That a client has gone is seen at once when something is about to be done for
// it, and while a server is waited for within 20 ms of the try's beginning or of
// the client's leaving.
//
// # Names of certificates
//
// Over upstream_keepalive a server's certificate must be for the name on its
// line. Caddy's transports are only told the address that is dialled: over them a
// group of names takes tls_server_name.
//
// # Request bodies
//
// As nginx does, the whole body is read before a server is chosen, in memory
// and then in a temporary file, so that a retry can send it again. Bodies that
// are not buffered are sent once: after any of it was read, no other server is
// asked. An answer that comes before an HTTP/1 client has sent all of such a body
// is passed on at once, and is the last on the client's connection.
//
// Handlers that run after this one in the same request, in handle_response or
// handle_errors, get the buffered body as well, as after nginx's internal
// redirects. A body that was sent and not buffered is an error there (500), and
// never taken for an empty one.
//
// # Slow connections
//
// With connect_hedge, a connection that is not there after that time goes on in
// the background, and the round trip ends as if it had failed, so that Caddy
// makes the request for the next server and its name, headers and placeholders
// are right. That round trip waits for both connections. If the first one comes
// before the second, it ends in the same way, and the request is made for the
// first server again, whose connection is used. So nothing is sent before it is
// known who gets it. A connection that comes too late is kept for others, and
// one that fails counts against its server, also after the request has ended;
// the server is left alone until then. A client that leaves before any server is
// connected ends them all.
package nextupstream
