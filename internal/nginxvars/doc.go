// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package nginxvars is the parent of small packages that compute a value the
// way one of nginx's directives does, without any configuration syntax of
// their own and without Caddy:
//
//   - access: allow and deny, the first rule that matches
//   - geo: a value by client address, longest prefix or ranges
//   - nginxmap: a value by another value, the map directive
//   - splitclients: a value by a hash, in given shares
//
// The tables are built once, are read-only afterwards, and may be read from
// any number of goroutines.
package nginxvars
