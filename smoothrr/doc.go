// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package smoothrr is smooth weighted round robin, the default balancing method.
//
// The algorithm is nginx's: each pass adds to every eligible server its effective
// weight, picks the one with the greatest current weight (the first of equals),
// and subtracts the sum of what was added from the winner. Over each full cycle
// every server gets exactly its weight's share, spread as evenly as can be. A
// failure lowers the effective weight; each pass gives one back.
//
// The pass runs in the engine (internal/peer), whose every other method uses it
// too, in time that depends on the number of distinct weights and not on that of
// servers.
//
//	upstream app {
//		smooth_round_robin          # the default
//		server 10.0.0.1:80 weight=5
//		server 10.0.0.2:80
//		server 10.0.0.3:80
//	}
package smoothrr
