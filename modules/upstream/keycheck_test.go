// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import "testing"

func TestPlaceholdersThatDoNotExistWhereAGroupIsUsedAreKnown(t *testing.T) {
	for name, want := range map[string]struct{ http, stream bool }{
		"http.request.uri":                     {http: true},
		"http.request.uri.query.user":          {http: true},
		"http.request.header.X-User":           {http: true},
		"http.request.cookie.user":             {http: true},
		"http.request.host":                    {http: true},
		"http.request.host.labels.1":           {http: true},
		"http.request.remote.host":             {http: true},
		"http.request.body":                    {http: true},
		"http.request.uuid":                    {http: true},
		"http.request.orig_uri.path":           {http: true},
		"http.request.tls.client.subject":      {http: true},
		"http.vars.client_ip":                  {http: true},
		"http.auth.user.id":                    {http: true},
		"http.request.hots":                    {},
		"http.request.client":                  {},
		"http.reverse_proxy.upstream.hostport": {},
		"stream.remote_addr":                   {stream: true},
		"stream.vars.key":                      {stream: true},
		"env.HOME":                             {http: true, stream: true},
		"geoip2.country_code":                  {http: true, stream: true},
		"host":                                 {},
	} {
		if got := inHTTP(name); got != want.http {
			t.Errorf("inHTTP(%q) = %v, want %v", name, got, want.http)
		}
		if got := inStream(name); got != want.stream {
			t.Errorf("inStream(%q) = %v, want %v", name, got, want.stream)
		}
	}
}
