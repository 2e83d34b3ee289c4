// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

// table is every directive that is known, with what it becomes. A directive
// that may stand in several kinds of blocks with a different meaning has an
// entry for each.
var table map[string][]entry

const inRewrite = inServer | inLocation | inIf

func init() {
	table = map[string][]entry{
		"events":   {{in: inMain, block: true, do: (*adapter).events}},
		"http":     {{in: inMain, block: true, do: (*adapter).http}},
		"upstream": {{in: inHTTP | inStream, min: 1, max: 1, block: true, do: (*adapter).upstream}},
		"server": {
			{in: inHTTP, block: true, do: (*adapter).server},
			{in: inStream, block: true, do: (*adapter).streamServer},
			{in: inUpstream | inStreamUpstream, min: 1, max: -1, do: (*adapter).upstreamServer},
		},
		"location":      {{in: inServer | inLocation, min: 1, max: 2, block: true, do: (*adapter).location}},
		"if":            {{in: inServer | inLocation, min: 1, max: -1, block: true, do: (*adapter).ifBlock}},
		"map":           {{in: inHTTP, min: 2, max: 2, block: true, do: (*adapter).mapBlock}},
		"geo":           {{in: inHTTP, min: 1, max: 2, block: true, do: (*adapter).geoBlock}},
		"split_clients": {{in: inHTTP, min: 2, max: 2, block: true, do: (*adapter).splitBlock}},
		"types":         {{in: inAll, block: true, do: (*adapter).typesBlock}},

		"resolver":         {{in: inAll | inUpstream, min: 1, max: -1, read: readResolver}},
		"resolver_timeout": {{in: inAll | inUpstream | inStream | inStreamServer | inStreamUpstream, min: 1, max: 1, read: readTime}},
		"include":          {{in: ^context(0), min: 1, max: 1, do: (*adapter).include}},
		"worker_processes": {{in: inMain, min: 1, max: 1, do: (*adapter).workerProcesses}},

		// upstream
		"least_conn":         {{in: inUpstream | inStreamUpstream, do: (*adapter).leastConn}},
		"ip_hash":            {{in: inUpstream, do: (*adapter).ipHash}},
		"hash":               {{in: inUpstream | inStreamUpstream, min: 1, max: 2, do: (*adapter).hash}},
		"random":             {{in: inUpstream | inStreamUpstream, max: 2, do: (*adapter).random}},
		"least_time":         {{in: inUpstream | inStreamUpstream, min: 1, max: 2, do: (*adapter).leastTime}},
		"sticky":             {{in: inUpstream, min: 1, max: -1, do: (*adapter).sticky}},
		"queue":              {{in: inUpstream, min: 1, max: 2, do: (*adapter).queue}},
		"state":              {{in: inUpstream | inStreamUpstream, min: 1, max: 1, do: (*adapter).state}},
		"keepalive_requests": {{in: inUpstream, min: 1, max: 1, read: readNumber}, {in: inAll, max: -1, moot: clientKeepalive}},
		"keepalive_time":     {{in: inUpstream, min: 1, max: 1, read: readTime}, {in: inAll, min: 1, max: 1, moot: clientKeepalive}},
		"keepalive_timeout":  {{in: inUpstream, min: 1, max: 1, read: readTime}, {in: inAll, min: 1, max: 2, read: readWords}},
		"keepalive":          {{in: inUpstream, min: 1, max: 2, read: readWords}},
		"zone":               {{in: inUpstream | inStreamUpstream, min: 1, max: 2, read: readWords}},

		// server
		"listen":               {{in: inServer, min: 1, max: -1, do: (*adapter).listen}},
		"server_name":          {{in: inServer, min: 1, max: -1, multi: true, read: readServerNames}},
		"http2":                {{in: inHTTP | inServer, min: 1, max: 1, read: readFlag}},
		"merge_slashes":        {{in: inHTTP | inServer, min: 1, max: 1, read: readFlag}},
		"absolute_redirect":    {{in: inAll, min: 1, max: 1, read: readFlag}},
		"client_max_body_size": {{in: inAll, min: 1, max: 1, read: readSize}},
		"client_body_timeout":  {{in: inHTTP | inServer, min: 1, max: 1, read: readTime}},
		"client_header_timeout": {
			{in: inHTTP | inServer, min: 1, max: 1, read: readTime},
		},
		"send_timeout":            {{in: inHTTP | inServer, min: 1, max: 1, read: readTime}},
		"client_body_buffer_size": {{in: inAll, min: 1, max: 1, read: readSize}},
		"set_real_ip_from":        {{in: inAll, min: 1, max: 1, multi: true, read: readText}},
		"real_ip_header":          {{in: inAll, min: 1, max: 1, read: readText}},
		"real_ip_recursive":       {{in: inAll, min: 1, max: 1, read: readFlag}},
		"ssl_certificate":         {{in: inHTTP | inServer, min: 1, max: 1, multi: true, read: readText}},
		"ssl_certificate_key":     {{in: inHTTP | inServer, min: 1, max: 1, multi: true, read: readText}},
		"ssl_protocols":           {{in: inHTTP | inServer, min: 1, max: -1, read: readWords}},
		"ssl_client_certificate":  {{in: inHTTP | inServer, min: 1, max: 1, read: readText}},
		"ssl_verify_client":       {{in: inHTTP | inServer, min: 1, max: 1, read: oneOf("on", "off", "optional", "optional_no_ca")}},

		// location
		"root":                  {{in: inAll | inIf, min: 1, max: 1, read: readTemplate}},
		"alias":                 {{in: inLocation, min: 1, max: 1, read: readTemplate}},
		"index":                 {{in: inAll, min: 1, max: -1, read: readTemplates}},
		"try_files":             {{in: inServer | inLocation, min: 2, max: -1, read: readTemplates}},
		"default_type":          {{in: inAll, min: 1, max: 1, read: readText}},
		"internal":              {{in: inLocation, read: func(*adapter, *dir) (any, error) { return true, nil }}},
		"allow":                 {{in: inAll, min: 1, max: 1, do: (*adapter).accessRule}},
		"deny":                  {{in: inAll, min: 1, max: 1, do: (*adapter).accessRule}},
		"add_header":            {{in: inAll | inIf, min: 2, max: 3, multi: true, read: readAddHeader}},
		"limit_rate":            {{in: inAll | inIf, min: 1, max: 1, read: readRate}},
		"limit_rate_after":      {{in: inAll | inIf, min: 1, max: 1, read: readRate}},
		"error_page":            {{in: inAll | inIf, min: 2, max: -1, multi: true, read: readErrorPage}},
		"recursive_error_pages": {{in: inAll, min: 1, max: 1, read: readFlag}},
		"access_log":            {{in: inAll | inIf, min: 1, max: -1, multi: true, read: readAccessLog}},
		"log_format":            {{in: inHTTP, min: 2, max: -1, do: (*adapter).logFormat}},

		// rewrite
		"return":  {{in: inRewrite, min: 1, max: 2, do: (*adapter).returnRule}},
		"rewrite": {{in: inRewrite, min: 2, max: 3, do: (*adapter).rewriteRule}},
		"set":     {{in: inRewrite, min: 2, max: 2, do: (*adapter).setRule}},
		"break":   {{in: inRewrite, do: (*adapter).breakRule}},

		// proxy
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
		"proxy_ssl_session_reuse":       {{in: inAll, min: 1, max: 1, read: readSessionReuse}},
		"proxy_ssl_protocols":           {{in: inAll, min: 1, max: -1, read: readClientProtocols}},

		// grpc; what it shares with proxy is added below
		"grpc_pass":        {{in: inLocation | inIf, min: 1, max: 1, read: readGRPCPass}},
		"grpc_buffer_size": {{in: inAll, min: 1, max: 1, read: readSize}},
	}
	for _, name := range grpcOptions {
		table["grpc_"+name] = table["proxy_"+name]
	}
	for name, list := range streamTable {
		table[name] = append(table[name], list...)
	}
	for name, e := range accepted {
		table[name] = append(table[name], e)
	}
	for name, advice := range refused {
		table[name] = append([]entry{{in: ^context(0), advice: advice}}, table[name]...)
	}
}

// grpcOptions are those of grpc_* that are read as their namesakes of proxy_*.
var grpcOptions = []string{
	"set_header", "hide_header", "pass_header", "ignore_headers", "intercept_errors", "bind",
	"connect_timeout", "send_timeout", "read_timeout", "next_upstream", "next_upstream_tries", "next_upstream_timeout",
	"ssl_name", "ssl_server_name", "ssl_verify", "ssl_trusted_certificate", "ssl_certificate", "ssl_certificate_key",
	"ssl_session_reuse", "ssl_protocols",
}

const (
	ownProcess      = "Caddy has no worker processes or event loop to set up"
	caddyBuffers    = "Caddy sizes its buffers itself"
	sockets         = "Caddy sets its sockets up itself"
	clientKeepalive = "connections of clients are not limited by age or number of requests"
	hashTables      = "there are no hash tables to size"
)

// accepted directives cannot change what a client or a server sees here.
var accepted = map[string]entry{
	"user":                           moot(inMain, "Caddy runs as the user that starts it"),
	"daemon":                         moot(inMain, "use caddy start or a service manager"),
	"master_process":                 moot(inMain, ownProcess),
	"pid":                            moot(inMain, "use caddy start --pidfile"),
	"lock_file":                      moot(inMain, ownProcess),
	"error_log":                      moot(inMain|inAll|inStream|inStreamServer, "errors go to Caddy's own log"),
	"load_module":                    moot(inMain, "what is not built in is reported where it is used"),
	"pcre_jit":                       moot(inMain, "regular expressions are Go's"),
	"worker_rlimit_nofile":           moot(inMain, "set the limit of Caddy's process"),
	"worker_rlimit_core":             moot(inMain, "set the limit of Caddy's process"),
	"worker_priority":                moot(inMain, ownProcess),
	"worker_cpu_affinity":            moot(inMain, ownProcess),
	"worker_shutdown_timeout":        moot(inMain, "set grace_period of Caddy's http app if connections must end"),
	"timer_resolution":               moot(inMain, ownProcess),
	"thread_pool":                    moot(inMain, ownProcess),
	"worker_connections":             moot(inEvents, ownProcess),
	"multi_accept":                   moot(inEvents, ownProcess),
	"use":                            moot(inEvents, ownProcess),
	"accept_mutex":                   moot(inEvents, ownProcess),
	"accept_mutex_delay":             moot(inEvents, ownProcess),
	"debug_connection":               moot(inEvents, "use Caddy's log levels"),
	"sendfile":                       moot(inAll|inIf, caddyBuffers),
	"sendfile_max_chunk":             moot(inAll, caddyBuffers),
	"tcp_nopush":                     moot(inAll, sockets),
	"tcp_nodelay":                    moot(inAll, sockets),
	"reset_timedout_connection":      moot(inAll, sockets),
	"aio":                            moot(inAll, caddyBuffers),
	"directio":                       moot(inAll, caddyBuffers),
	"output_buffers":                 moot(inAll, caddyBuffers),
	"postpone_output":                moot(inAll, caddyBuffers),
	"server_tokens":                  moot(inAll, "Caddy names no version"),
	"types_hash_max_size":            moot(inAll, hashTables),
	"types_hash_bucket_size":         moot(inAll, hashTables),
	"server_names_hash_max_size":     moot(inHTTP, hashTables),
	"variables_hash_max_size":        moot(inHTTP, hashTables),
	"variables_hash_bucket_size":     moot(inHTTP, hashTables),
	"map_hash_max_size":              moot(inHTTP, hashTables),
	"map_hash_bucket_size":           moot(inHTTP, hashTables),
	"proxy_headers_hash_max_size":    moot(inAll, hashTables),
	"proxy_headers_hash_bucket_size": moot(inAll, hashTables),
	"server_names_hash_bucket_size":  moot(inHTTP, hashTables),
	"client_header_buffer_size":      moot(inHTTP|inServer, caddyBuffers),
	"client_body_temp_path":          moot(inAll, "temporary files have no name"),
	"client_body_in_single_buffer":   moot(inAll, caddyBuffers),
	"proxy_temp_path":                moot(inAll, "responses are not kept in files"),
	"fastcgi_temp_path":              moot(inAll, "responses are not kept in files"),
	"uwsgi_temp_path":                moot(inAll, "responses are not kept in files"),
	"scgi_temp_path":                 moot(inAll, "responses are not kept in files"),
	"proxy_buffers":                  moot(inAll, caddyBuffers),
	"proxy_busy_buffers_size":        moot(inAll, caddyBuffers),
	"proxy_max_temp_file_size":       moot(inAll, "responses are not kept in files"),
	"proxy_temp_file_write_size":     moot(inAll, "responses are not kept in files"),
	"proxy_socket_keepalive":         moot(inAll, sockets),
	"proxy_send_lowat":               moot(inAll, sockets),
	"grpc_socket_keepalive":          moot(inAll, sockets),
	"grpc_ssl_verify_depth":          moot(inAll, "certificate chains are not limited in depth"),
	"proxy_ssl_verify_depth":         moot(inAll, "certificate chains are not limited in depth"),
	"lingering_close":                moot(inAll, sockets),
	"lingering_time":                 moot(inAll, sockets),
	"lingering_timeout":              moot(inAll, sockets),
	"open_file_cache":                moot(inAll, "files are opened for each request"),
	"open_file_cache_valid":          moot(inAll, "files are opened for each request"),
	"open_file_cache_errors":         moot(inAll, "files are opened for each request"),
	"open_file_cache_min_uses":       moot(inAll, "files are opened for each request"),
	"open_log_file_cache":            moot(inAll, "log files stay open"),
	"log_not_found":                  moot(inAll, "missing files are logged at level debug"),
	"log_subrequest":                 moot(inAll, "there are no subrequests"),
	"ssl_session_cache":              moot(inHTTP|inServer, "sessions are kept in tickets"),
	"ssl_session_timeout":            moot(inHTTP|inServer, "sessions are kept in tickets"),
	"ssl_session_tickets":            moot(inHTTP|inServer, "sessions are kept in tickets; keys rotate"),
	"ssl_prefer_server_ciphers":      moot(inHTTP|inServer, "the order of ciphers is Go's"),
	"ssl_dhparam":                    moot(inHTTP|inServer, "there is no DHE key exchange"),
	"ssl_buffer_size":                moot(inHTTP|inServer, caddyBuffers),
	"ssl_verify_depth":               moot(inHTTP|inServer, "certificate chains are not limited in depth"),
	"uninitialized_variable_warn":    moot(inAll|inIf, "variables without a value are empty"),
	"rewrite_log":                    moot(inAll|inIf, "rules are not logged"),
}

func moot(in context, why string) entry { return entry{in: in, max: -1, moot: why} }

// refused directives are known and change what happens; each says what to do.
var refused = map[string]string{
	"ntlm": "it needs a connection for each client",

	"mail":                        "Caddy has no mail proxy",
	"perl":                        "there is no Perl",
	"env":                         "set the environment of Caddy's process",
	"underscores_in_headers":      "list the names in expected_underscore_headers of Caddy's server",
	"ignore_invalid_headers":      "invalid header fields are always refused or dropped",
	"large_client_header_buffers": "set max_header_bytes of Caddy's server",
	"limit_except":                "use if ($request_method ...) { return 403; }",
	"satisfy":                     "use allow and deny alone",
	"auth_basic":                  "use Caddy's handler authentication (basic_auth)",
	"auth_basic_user_file":        "use Caddy's handler authentication (basic_auth)",
	"auth_request":                "use Caddy's forward_auth",
	"limit_req":                   "use a rate limit plugin of Caddy",
	"limit_req_zone":              "use a rate limit plugin of Caddy",
	"limit_conn":                  "use max_conns of the servers in the upstream block",
	"limit_conn_zone":             "use max_conns of the servers in the upstream block",
	"gzip":                        "take it out (or say gzip off in nginx only), and use Caddy's handler encode",
	"gzip_types":                  "take it out, and use Caddy's handler encode",
	"expires":                     "use add_header Cache-Control",
	"autoindex":                   "use Caddy's file_server browse",
	"proxy_cache":                 "Caddy has no cache: use a cache plugin",
	"proxy_cache_path":            "Caddy has no cache: use a cache plugin",
	"proxy_cache_valid":           "Caddy has no cache: use a cache plugin",
	"proxy_cache_key":             "Caddy has no cache: use a cache plugin",
	"proxy_store":                 "responses cannot be stored",
	"proxy_set_body":              "bodies cannot be replaced",
	"proxy_pass_request_body":     "bodies are always passed on",
	"proxy_ssl_ciphers":           "take it out: Go's own choice of ciphers is used",
	"proxy_ssl_crl":               "revocation lists are not read",
	"proxy_ssl_password_file":     "use a key without a password",
	"ssl_ciphers":                 "take it out: Go's own choice of ciphers is used",
	"ssl_ecdh_curve":              "take it out: Go's own choice of curves is used",
	"ssl_crl":                     "revocation lists are not read",
	"ssl_stapling":                "take it out: Caddy staples by itself",
	"ssl_stapling_verify":         "take it out: Caddy staples by itself",
	"ssl_password_file":           "use a key without a password",
	"ssl_trusted_certificate":     "use ssl_client_certificate",
	"ssl_reject_handshake":        "leave the server without a certificate out",
	"ssl":                         "use listen ... ssl",
	"fastcgi_pass":                "use php_fastcgi in Caddy",
	"uwsgi_pass":                  "there is no uwsgi",
	"scgi_pass":                   "use a plugin of Caddy",
	"memcached_pass":              "there is no memcached",
	"sub_filter":                  "use a plugin of Caddy",
	"ssi":                         "use Caddy's handler templates",
	"mirror":                      "requests are not sent twice",
	"client_body_in_file_only":    "bodies are not kept in files with a name",
}
