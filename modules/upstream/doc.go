// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package upstream holds the `upstream` app: named groups of servers for
// Caddy's reverse_proxy and for the stream app, and everything that connects
// them with Caddy: the selection policies, the dynamic source, placeholders,
// logs and the runtime API. The engine that chooses and accounts is
// internal/peer; this package knows Caddy and HTTP, the engine does not.
//
//	{
//		upstream app {
//			server 10.0.0.1:8080 weight=5
//			server 10.0.0.2:8080 max_fails=3 fail_timeout=30s
//			server 10.0.0.3:8080 backup
//			keepalive 32
//		}
//	}
//
//	example.com {
//		reverse_proxy {
//			lb_policy upstream app
//			transport next_upstream
//		}
//	}
//
// # State
//
// The live state of a group belongs to a [Runtime], which lives as long as any
// configuration names the group. A reload leaves alone what it does not change:
// a server that was disabled still is, since when it was, with its weights,
// counts and connections. A reload that fails leaves everything as it was.
//
// A list of addresses without a group has a Runtime, too, whose name is all that
// the list says. So two handlers with the same addresses and other options stay
// apart, and a list that a reload changes begins anew: which of two such handlers
// a changed one was before, nobody could tell, and what a policy changed in its
// Provision would be in force even if the reload failed, for a policy, unlike an
// app, is not told when it begins.
//
// # One request
//
// Caddy's proxy loop calls a policy's Select, then the transport's RoundTrip,
// once for each try. Select begins or continues a [Walk]; the walk's current [Try]
// holds the lease of a server from the pick until its outcome is known. The
// transport next_upstream ends it; over any other transport the policy puts an
// observer around the handler's transport, which does. There Caddy decides on
// retries (lb_retries, lb_try_duration), and when all servers have been asked
// and some are still eligible they are asked again.
//
// A lease ends exactly once, whatever happens: with the response's body, with an
// error, or, through the request's context, when the client leaves or Caddy
// stops half-way.
package upstream
