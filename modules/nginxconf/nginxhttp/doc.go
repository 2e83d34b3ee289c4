// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package nginxhttp holds the Caddy modules that the adapter for nginx.conf
// writes into a configuration, for what Caddy's own modules cannot express
// exactly:
//
//   - http.handlers.nginx_server: the choice of a location, rewrite and access
//     rules, internal redirects, error pages, response headers
//   - http.handlers.nginx_static and nginx_try_files: files as nginx serves them
//   - http.reverse_proxy.transport.nginx_request and nginx_grpc: the request as
//     proxy_pass, grpc_pass and proxy_set_header make it, over upstream_keepalive
//     and HTTP/2
//   - caddy.logging.encoders.nginx: lines in a log_format
//   - the app nginx: the variables of map, geo and split_clients
//
// While nginx_server handles a request every variable of nginx is a
// placeholder: $uri is {nginx.uri}, $1 is {nginx.1}, $my_map is
// {nginx.my_map}. A variable that has no value is an empty text.
//
// A request goes through the phases of nginx: real_ip of the server, its
// rewrite rules, the choice of a location, that location's rewrite rules and
// access rules, its handlers. A rewrite that starts over, an error page,
// try_files or an X-Accel-Redirect make an internal redirect: back to the
// choice of a location, at most ten times.
package nginxhttp
