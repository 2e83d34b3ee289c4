// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package activehealth asks the servers of a group whether they are well,
// before a client finds out that they are not.
//
//	upstream app {
//		server 10.0.0.1:8080
//		server 10.0.0.2:8080
//		health_check uri=/healthz interval=5s fails=3 passes=2 {
//			expect_body ok
//		}
//		health_check tcp port=9000
//	}
//
// There are four kinds: http (the default) sends a request and looks at status,
// headers and body; tcp connects, sends and expects; tls makes a handshake and
// checks the certificate; grpc asks the standard health service. A group may
// have any number of checks. A server is out while any of them says so, and it
// is back when that one has passed again; the passive tracker judges beside
// them, and a check that passes ends its time out.
//
// A server goes out after `fails` failed checks in a row and comes back after
// `passes` passed ones. The first result counts at once if it is a pass. With
// `mandatory` a new or returning server is out until its first pass. When the
// configuration of the group changes, servers that stay keep their verdicts,
// unless the check is mandatory and not `persistent`.
//
// One goroutine, for all groups of the process, waits for the check that is due
// and starts it: a check that hangs holds up no other. First checks are a
// millisecond apart, within the interval, and later ones keep that distance.
// Equal checks of the same address, in whatever groups, are asked once. Checks
// have connections of their own: they do not count in conns, max_conns,
// least_time or the keepalive cache.
//
// A check whose settings say nothing of TLS talks to servers as the handlers of
// the group do: the transports of reverse_proxy, ours and Caddy's, and the ssl of
// stream's proxy_pass tell the group while the configuration is provisioned.
// Handlers that differ are an error, which asks for the check to say what it
// does.
//
// Limits: conditions on bodies see the first 64 KiB. HTTP is version 1.1. Of a
// handler that names its group by placeholders, and of other people's
// transports, a check knows nothing.
package activehealth
