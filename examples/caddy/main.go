// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Command caddy is the smallest Caddy with caddy-upstream plugged in: the main
// package that xcaddy generates for
//
//	xcaddy build --with github.com/caddy-upstream/caddy-upstream
//
// The examples, the integration tests and the benchmarks run it.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddy-upstream/caddy-upstream"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() {
	caddycmd.Main()
}
