// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package upstreamkeepalive is an HTTP/1.1 client transport for Caddy's
// reverse_proxy with nginx's keepalive cache.
package upstreamkeepalive
