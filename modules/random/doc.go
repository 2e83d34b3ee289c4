// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package random draws servers by their weights: nginx's "random", "random two
// least_conn", and with nginx Plus "random two least_time=...". Of two servers
// drawn the better one is taken, which with many front servers that do not know
// of each other avoids that all run to the same one (Mitzenmacher: The power of
// two choices in randomized load balancing).
//
// The backup servers, a group with one server and sessions that have met 21
// peers that could not be picked are served by round robin. The cost of a pick
// does not depend on the number of servers but for a binary search where their
// weights differ.
package random
