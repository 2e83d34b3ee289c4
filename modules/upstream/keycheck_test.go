// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import "testing"

func TestPlaceholdersThatDoNotExistWhereAGroupIsUsedAreKnown(t *testing.T) {
	for name, want := range map[string]bool{
		"http.request.uri":                     true,
		"http.request.uri.query.user":          true,
		"http.request.header.X-User":           true,
		"http.request.cookie.user":             true,
		"http.request.host":                    true,
		"http.request.host.labels.1":           true,
		"http.request.remote.host":             true,
		"http.request.body":                    true,
		"http.request.uuid":                    true,
		"http.request.orig_uri.path":           true,
		"http.request.tls.client.subject":      true,
		"http.vars.client_ip":                  true,
		"http.auth.user.id":                    true,
		"http.request.hots":                    false,
		"http.request.client":                  false,
		"http.reverse_proxy.upstream.hostport": false,
		"stream.remote_addr":                   false,
		"env.HOME":                             true,
		"geoip2.country_code":                  true,
		"http.reqest.uri":                      false,
		"http.regexp.user.1":                   true,
		"http.handlers.file_server.index":      true,
		"http.upstream.addr":                   true,
		"host":                                 false,
	} {
		if got := inHTTP(name); got != want {
			t.Errorf("inHTTP(%q) = %v, want %v", name, got, want)
		}
	}
}
