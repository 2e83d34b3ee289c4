// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package caddyfile is the Caddyfile face of caddy-upstream for HTTP: the
// directive proxy_pass. It is to reverse_proxy what forward_auth is, a shorthand
// that expands to a plain reverse_proxy handler:
//
//	proxy_pass [<matcher>] [<scheme>://]<group> | <address...> {
//		next_upstream error timeout http_502
//		next_upstream_tries 3
//		connect_timeout 2s
//		header_up X-Shop {http.request.host}
//	}
//
// The first argument is a group of the global option upstream; or addresses,
// which need a port, a slash or a scheme to be told from a group's name. What
// reverse_proxy knows and makes sense here is passed on to it; what would do
// nothing is refused with the word to use instead.
//
// The global options upstream and stream belong to the packages of those apps,
// so that builds of one feature have them. This package imports the defaults:
// smooth round robin, passive health, next_upstream and the keepalive transport.
package caddyfile

import (
	_ "github.com/caddy-upstream/caddy-upstream/passivehealth"
	_ "github.com/caddy-upstream/caddy-upstream/smoothrr"
)
