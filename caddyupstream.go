// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package caddyupstream plugs all of caddy-upstream into Caddy:
//
//	xcaddy build --with github.com/caddy-upstream/caddy-upstream
//
// See README.md for what that is. To build a part, name its package instead.
package caddyupstream

import _ "github.com/caddy-upstream/caddy-upstream/modules"
