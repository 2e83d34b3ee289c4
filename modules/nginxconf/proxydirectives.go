// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

// proxyDirectives are those of proxy_pass.
func proxyDirectives() map[string][]entry {
	return map[string][]entry{
		"proxy_pass":                    {{in: inLocation | inIf, min: 1, max: 1, read: readProxyPass}},
		"proxy_set_header":              {{in: inAll, min: 2, max: 2, multi: true, read: readPair}},
		"proxy_hide_header":             {{in: inAll, min: 1, max: 1, multi: true, read: readText}},
		"proxy_pass_header":             {{in: inAll, min: 1, max: 1, multi: true, read: readText}},
		"proxy_ignore_headers":          {{in: inAll, min: 1, max: -1, read: readWords}},
		"proxy_redirect":                {{in: inAll, min: 1, max: 2, multi: true, read: readRedirect}},
		"proxy_cookie_domain":           {{in: inAll, min: 1, max: 2, multi: true, read: readCookieRule}},
		"proxy_cookie_path":             {{in: inAll, min: 1, max: 2, multi: true, read: readCookieRule}},
		"proxy_cookie_flags":            {{in: inAll, min: 1, max: 4, multi: true, read: readCookieFlags}},
		"proxy_limit_rate":              {{in: inAll, min: 1, max: 1, read: readRate}},
		"proxy_pass_request_headers":    {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_pass_request_body":       {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_method":                  {{in: inAll, min: 1, max: 1, read: readTemplate}},
		"proxy_http_version":            {{in: inAll, min: 1, max: 1, read: oneOf("1.0", "1.1")}},
		"proxy_connect_timeout":         {{in: inAll, min: 1, max: 1, read: readTime}},
		"proxy_send_timeout":            {{in: inAll, min: 1, max: 1, read: readTime}},
		"proxy_read_timeout":            {{in: inAll, min: 1, max: 1, read: readTime}},
		"proxy_buffering":               {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_buffer_size":             {{in: inAll, min: 1, max: 1, read: readSize}},
		"proxy_request_buffering":       {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_intercept_errors":        {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_next_upstream":           {{in: inAll, min: 1, max: -1, read: readConditions}},
		"proxy_next_upstream_tries":     {{in: inAll, min: 1, max: 1, read: readNumber}},
		"proxy_next_upstream_timeout":   {{in: inAll, min: 1, max: 1, read: readTime}},
		"proxy_bind":                    {{in: inAll, min: 1, max: 2, read: readBind}},
		"proxy_ssl_name":                {{in: inAll, min: 1, max: 1, read: readTemplate}},
		"proxy_ssl_server_name":         {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_ssl_verify":              {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_ssl_trusted_certificate": {{in: inAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_certificate":         {{in: inAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_certificate_key":     {{in: inAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_crl":                 {{in: inAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_password_file":       {{in: inAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_session_reuse":       {{in: inAll, min: 1, max: 1, read: readFlag}},
		"proxy_ssl_protocols":           {{in: inAll, min: 1, max: -1, read: readClientProtocols}},
	}
}

// grpcDirectives are those of grpc_pass; most are read as their namesakes of
// proxy_pass.
func grpcDirectives() map[string][]entry {
	out := map[string][]entry{
		"grpc_pass":        {{in: inLocation | inIf, min: 1, max: 1, read: readGRPCPass}},
		"grpc_buffer_size": {{in: inAll, min: 1, max: 1, read: readSize}},
	}
	proxy := proxyDirectives()
	for _, name := range grpcOptions {
		out["grpc_"+name] = proxy["proxy_"+name]
	}
	return out
}

// grpcOptions are those of grpc_* that are read as their namesakes of proxy_*.
var grpcOptions = []string{
	"set_header", "hide_header", "pass_header", "ignore_headers", "intercept_errors", "bind",
	"connect_timeout", "send_timeout", "read_timeout", "next_upstream", "next_upstream_tries", "next_upstream_timeout",
	"ssl_name", "ssl_server_name", "ssl_verify", "ssl_trusted_certificate", "ssl_certificate", "ssl_certificate_key",
	"ssl_crl", "ssl_password_file",
	"ssl_session_reuse", "ssl_protocols",
}
