// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package cfg

import "github.com/caddyserver/caddy/v2"

const repository = "github.com/caddy-upstream/caddy-upstream"

// Packages are where the modules of this repository are that another one of its
// modules may ask for by name.
var Packages = map[caddy.ModuleID]string{
	"upstream.balancers.smooth_round_robin":           "smoothrr",
	"upstream.balancers.least_conn":                   "leastconn",
	"upstream.balancers.ip_hash":                      "modules/iphash",
	"upstream.balancers.hash":                         "modules/hash",
	"upstream.balancers.random":                       "modules/random",
	"upstream.balancers.least_time":                   "modules/leasttime",
	"upstream.sticky.cookie":                          "modules/sticky",
	"upstream.sticky.route":                           "modules/sticky",
	"upstream.sticky.learn":                           "modules/sticky",
	"upstream.health_trackers.passive":                "passivehealth",
	"upstream.resolvers.dns":                          "modules/resolve",
	"upstream.health_checks.http":                     "modules/activehealth",
	"upstream.health_checks.tcp":                      "modules/activehealth",
	"upstream.health_checks.tls":                      "modules/activehealth",
	"upstream.health_checks.grpc":                     "modules/activehealth",
	"http.reverse_proxy.transport.next_upstream":      "modules/nextupstream",
	"http.reverse_proxy.transport.upstream_keepalive": "upstreamkeepalive",
}

// NotInBuild says how to get a module of this repository that is not in the
// build. It is nil for all other modules.
func NotInBuild(id string) error {
	pkg := Packages[caddy.ModuleID(id)]
	if _, unknown := caddy.GetModule(id); unknown == nil || pkg == "" {
		return nil
	}
	return errorf("module %s is not in this build, add --with %s/%s", id, repository, pkg)
}
