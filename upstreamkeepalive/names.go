// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"net/textproto"
	"strings"
)

// names are header names that most responses have, by how servers write them,
// so that they need no new string.
var names = func() map[string]string {
	m := make(map[string]string)
	for name := range strings.FieldsSeq(`
		Accept-Ranges Access-Control-Allow-Credentials Access-Control-Allow-Headers
		Access-Control-Allow-Methods Access-Control-Allow-Origin
		Access-Control-Expose-Headers Age Allow Alt-Svc Cache-Control Connection
		Content-Disposition Content-Encoding Content-Language Content-Length
		Content-Location Content-Range Content-Security-Policy Content-Type Date Etag
		Expires Keep-Alive Last-Modified Link Location Permissions-Policy Pragma
		Referrer-Policy Retry-After Server Server-Timing Set-Cookie
		Strict-Transport-Security Trailer Transfer-Encoding Upgrade Vary Via
		Www-Authenticate X-Accel-Buffering X-Cache X-Content-Type-Options
		X-Frame-Options X-Powered-By X-Request-Id X-Xss-Protection`) {
		m[name] = name
		m[strings.ToLower(name)] = name
	}
	m["ETag"] = "Etag"
	m["WWW-Authenticate"] = "Www-Authenticate"
	m["X-XSS-Protection"] = "X-Xss-Protection"
	m["X-Request-ID"] = "X-Request-Id"
	return m
}()

// canonical returns the canonical form of a header name, which is a token.
func canonical(name string) string {
	if s, ok := names[name]; ok {
		return s
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}
