// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package nginxconf is the config adapter nginx-upstream: it turns the proxying
// part of an nginx.conf into a configuration of Caddy that behaves the same.
//
//	caddy run --config nginx.conf --adapter nginx-upstream
//
// The text is parsed by nginx-go-crossplane. Each directive has an entry in a
// table that says in which blocks it may stand and what becomes of it; what is
// not there, or cannot be translated, is an error that names file, line and
// directive. A directive that cannot change anything here is a warning.
//
// What a location says becomes a location of the handler nginx_server (package
// nginxhttp), with everything that it inherits; an upstream block becomes a
// group of the upstream app; proxy_pass becomes reverse_proxy with the policy
// upstream and the transport next_upstream over nginx_request.
//
// The defaults are those of nginx 1.31. A comment in the file names another
// version:
//
//	# caddy-upstream: nginx 1.28
//
// Before 1.29.7 connections to servers were kept only where `keepalive` says
// so, and requests were HTTP/1.0. The admin endpoint of Caddy is off, unless a
// comment gives it an address:
//
//	# caddy-upstream: admin unix//run/caddy.sock
package nginxconf
