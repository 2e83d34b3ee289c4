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
// # Mistakes
//
// A mistake is one line with file, line, what was written and what was expected.
// In proxy_pass, in the global options and within the blocks of our own modules that
// is always so. In a reverse_proxy written out there is an exception: its lines
// beside each other. Caddy's directive hands each of its guests (lb_policy, dynamic,
// transport) the guest's own lines and calls none of our code with the rest of the
// block, nor with the global options, neither then nor at the end of the adaptation;
// and the JSON that it makes has no place for positions. So these are found when the
// configuration is loaded (`caddy adapt --validate` does so, too), in one line that
// names the option but not its place:
//
//   - a group that does not exist, in lb_policy upstream and dynamic upstream;
//   - lb_retries, lb_try_*, lb_retry_match, request_buffers and passive health checks
//     beside transport next_upstream, and that transport without a policy of ours;
//   - addresses (to), dynamic and health checks beside lb_policy upstream;
//   - a static policy without addresses, or with lines for others than those, or with
//     backups alone;
//   - settings of keepalive over a group with keepalive off.
//
// The golden files testdata/load_error_* hold the texts. proxy_pass has none of these.
//
// The global options upstream and stream belong to the packages of those apps,
// so that builds of one feature have them. This package imports the defaults:
// smooth round robin, passive health, next_upstream and the keepalive transport.
package caddyfile

import (
	_ "github.com/caddy-upstream/caddy-upstream/passivehealth"
	_ "github.com/caddy-upstream/caddy-upstream/smoothrr"
)
