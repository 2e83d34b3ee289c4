// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package timing keeps what least_time knows of a peer: averages of the times of
// its attempts and how long those in flight have been running. It is shared by the
// methods that choose by it, and lies with the peer (peer.Peer.Memo), so that
// it outlives changes of the configuration.
package timing
