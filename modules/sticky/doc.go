// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package sticky binds the sessions of a client to a server: by a cookie that it
// sets, by a route that the request carries, or by ids that it learns from the
// answers of the servers.
//
// What a request is bound to is a sid, the server's route or a digest of its
// address ([peer.Digest]); the engine looks it up before the method is asked
// (peer.SessionOptions.Hint). [Table] is what "sticky learn" remembers,
// [Attributes] the cookie.
package sticky
