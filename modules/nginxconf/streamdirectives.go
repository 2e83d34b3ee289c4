// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

// streamDirectives are those of stream but for proxying and TLS.
func streamDirectives() map[string][]entry {
	return map[string][]entry{
		"stream":                        {{in: inMain, block: true, do: (*adapter).stream}},
		"map":                           {{in: inStream, min: 2, max: 2, block: true, do: (*adapter).streamMap}},
		"geo":                           {{in: inStream, min: 1, max: 2, block: true, do: (*adapter).streamGeo}},
		"split_clients":                 {{in: inStream, min: 2, max: 2, block: true, do: (*adapter).streamSplit}},
		"limit_conn_zone":               {{in: inStream, min: 2, max: 2, do: (*adapter).streamZone}},
		"log_format":                    {{in: inStream, min: 2, max: -1, do: (*adapter).streamFormat}},
		"listen":                        {{in: inStreamServer, min: 1, max: -1, do: (*adapter).streamListen}},
		"server_name":                   {{in: inStreamServer, min: 1, max: -1, read: readStreamNames}},
		"set":                           {{in: inStreamServer, min: 2, max: 2, do: (*adapter).streamSet}},
		"return":                        {{in: inStreamServer, min: 1, max: 1, do: (*adapter).streamContent}},
		"pass":                          {{in: inStreamServer, min: 1, max: 1, do: (*adapter).streamContent}},
		"allow":                         {{in: inStreamAll, min: 1, max: 1, do: (*adapter).accessRule}},
		"deny":                          {{in: inStreamAll, min: 1, max: 1, do: (*adapter).accessRule}},
		"limit_conn":                    {{in: inStreamAll, min: 2, max: 2, multi: true, read: readWords}},
		"limit_conn_dry_run":            {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"limit_conn_log_level":          {{in: inStreamAll, max: -1, moot: "the level is warn"}},
		"set_real_ip_from":              {{in: inStreamAll, min: 1, max: 1, multi: true, read: readText}},
		"access_log":                    {{in: inStreamAll, min: 1, max: -1, multi: true, read: readStreamLog}},
		"preread_buffer_size":           {{in: inStreamAll, min: 1, max: 1, read: readSize}},
		"preread_timeout":               {{in: inStreamAll, min: 1, max: 1, read: readTime}},
		"tcp_nodelay":                   {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"map_hash_max_size":             {{in: inStream, max: -1, moot: hashTables}},
		"map_hash_bucket_size":          {{in: inStream, max: -1, moot: hashTables}},
		"variables_hash_max_size":       {{in: inStream, max: -1, moot: hashTables}},
		"variables_hash_bucket_size":    {{in: inStream, max: -1, moot: hashTables}},
		"server_names_hash_bucket_size": {{in: inStream, max: -1, moot: hashTables}},
	}
}

// streamProxyDirectives are those of proxying and TLS in stream.
func streamProxyDirectives() map[string][]entry {
	return map[string][]entry{
		"proxy_pass":                    {{in: inStreamServer, min: 1, max: 1, do: (*adapter).streamContent}},
		"ssl_preread":                   {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"proxy_protocol_timeout":        {{in: inStreamAll, min: 1, max: 1, read: readTime}},
		"proxy_connect_timeout":         {{in: inStreamAll, min: 1, max: 1, read: readTime}},
		"proxy_timeout":                 {{in: inStreamAll, min: 1, max: 1, read: readTime}},
		"proxy_next_upstream":           {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"proxy_next_upstream_tries":     {{in: inStreamAll, min: 1, max: 1, read: readNumber}},
		"proxy_next_upstream_timeout":   {{in: inStreamAll, min: 1, max: 1, read: readTime}},
		"proxy_half_close":              {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"proxy_upload_rate":             {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"proxy_download_rate":           {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"proxy_buffer_size":             {{in: inStreamAll, min: 1, max: 1, read: readSize}},
		"proxy_bind":                    {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"proxy_protocol":                {{in: inStreamAll, min: 1, max: 1, read: oneOf("on", "off", "v2")}},
		"proxy_socket_keepalive":        {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"proxy_requests":                {{in: inStreamAll, min: 1, max: 1, read: readNumber}},
		"proxy_responses":               {{in: inStreamAll, min: 1, max: 1, read: readNumber}},
		"proxy_ssl":                     {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"proxy_ssl_name":                {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_server_name":         {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"proxy_ssl_alpn":                {{in: inStreamAll, min: 1, max: -1, read: readWords}},
		"proxy_ssl_verify":              {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"proxy_ssl_verify_depth":        {{in: inStreamAll, max: -1, moot: "certificate chains are not limited in depth"}},
		"proxy_ssl_trusted_certificate": {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_certificate":         {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_certificate_key":     {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"proxy_ssl_session_reuse":       {{in: inStreamAll, min: 1, max: 1, read: readSessionReuse}},
		"proxy_ssl_protocols":           {{in: inStreamAll, min: 1, max: -1, read: readClientProtocols}},
		"ssl_certificate":               {{in: inStreamAll, min: 1, max: 1, multi: true, read: readText}},
		"ssl_certificate_key":           {{in: inStreamAll, min: 1, max: 1, multi: true, read: readText}},
		"ssl_password_file":             {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"ssl_protocols":                 {{in: inStreamAll, min: 1, max: -1, read: readProtocols}},
		"ssl_alpn":                      {{in: inStreamAll, min: 1, max: -1, read: readWords}},
		"ssl_client_certificate":        {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"ssl_trusted_certificate":       {{in: inStreamAll, min: 1, max: 1, read: readText}},
		"ssl_reject_handshake":          {{in: inStreamAll, min: 1, max: 1, read: readFlag}},
		"ssl_verify_client":             {{in: inStreamAll, min: 1, max: 1, read: oneOf("on", "off", "optional", "optional_no_ca")}},
		"ssl_handshake_timeout":         {{in: inStreamAll, min: 1, max: 1, read: readTime}},
		"ssl_session_cache":             {{in: inStreamAll, max: -1, moot: "sessions are kept in tickets"}},
		"ssl_session_timeout":           {{in: inStreamAll, max: -1, moot: "sessions are kept in tickets"}},
		"ssl_session_tickets":           {{in: inStreamAll, max: -1, moot: "sessions are kept in tickets; keys rotate"}},
		"ssl_prefer_server_ciphers":     {{in: inStreamAll, max: -1, moot: "the order of ciphers is Go's"}},
	}
}
