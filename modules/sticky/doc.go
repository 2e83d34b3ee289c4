// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package sticky binds the sessions of a client to a server: by a cookie that it
// sets, by a route that the request carries, or by ids that it learns from the
// answers of the servers.
//
// What a request is bound to is a sid, the server's route or a digest of its
// address ([peer.Digest]); the engine looks it up before the method is asked
// (peer.SessionOptions.Hint). [Table] is what "sticky learn" remembers,
// [Attributes] the cookie. A server that is draining is reached by its sid only,
// and one that is down, full or disabled not even so: then the method chooses,
// and the client is bound anew.
//
//	upstream app {
//		least_conn
//		server 10.0.0.1:8080 route=a
//		server 10.0.0.2:8080 route=b
//		sticky cookie srv_id expires=1h path=/ httponly
//		# or: sticky route {http.request.cookie.route} {http.request.uri.query.route}
//		# or: sticky learn create={http.upstream.cookie.session}
//		#         lookup={http.request.cookie.session} zone=sessions:1MiB
//	}
//
// The place of the line does not matter: sticky wraps the group's method. It
// needs HTTP requests; stream refuses a group that has it.
package sticky
