// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package modules imports the standard set of caddy-upstream.
package modules

import (
	_ "github.com/caddy-upstream/caddy-upstream/caddyfile"
	_ "github.com/caddy-upstream/caddy-upstream/l4stream"
	_ "github.com/caddy-upstream/caddy-upstream/leastconn"
	_ "github.com/caddy-upstream/caddy-upstream/modules/activehealth"
	_ "github.com/caddy-upstream/caddy-upstream/modules/command"
	_ "github.com/caddy-upstream/caddy-upstream/modules/hash"
	_ "github.com/caddy-upstream/caddy-upstream/modules/iphash"
	_ "github.com/caddy-upstream/caddy-upstream/modules/leasttime"
	_ "github.com/caddy-upstream/caddy-upstream/modules/nextupstream"
	_ "github.com/caddy-upstream/caddy-upstream/modules/nginxconf"
	_ "github.com/caddy-upstream/caddy-upstream/modules/random"
	_ "github.com/caddy-upstream/caddy-upstream/modules/resolve"
	_ "github.com/caddy-upstream/caddy-upstream/modules/status"
	_ "github.com/caddy-upstream/caddy-upstream/modules/sticky"
	_ "github.com/caddy-upstream/caddy-upstream/modules/upstream"
	_ "github.com/caddy-upstream/caddy-upstream/passivehealth"
	_ "github.com/caddy-upstream/caddy-upstream/smoothrr"
	_ "github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)
