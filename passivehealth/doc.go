// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package passivehealth is nginx's passive health: max_fails and fail_timeout.
//
// After max_fails failures a server is not used for fail_timeout. Then one
// request probes it; if that succeeds the server is trusted again, if not it
// stays out for another fail_timeout. Each failure also lowers the server's
// effective weight by weight/max_fails, which smooth weighted round robin gives
// back step by step. A group's only server is never disabled.
//
// What a failure is, the front decides: for HTTP, the transport next_upstream.
//
//	upstream app {
//		server 10.0.0.1:80 max_fails=3 fail_timeout=30s
//		server 10.0.0.2:80 max_fails=0            # never disabled
//	}
package passivehealth
