// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"regexp"
	"testing"
)

// aMoment is a time, in seconds or as a date.
var aMoment = regexp.MustCompile(`\d+\.\d{3}|\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d|[0-9a-f]{32}`)

// optionPairs are configurations with options beside the usual ones.
var optionPairs = []pair{
	{
		name: "cookies of servers are changed",
		server: `proxy_cookie_domain localhost example.org; proxy_cookie_domain ~\.(\w+\.net)$ .x.$1; proxy_cookie_domain var.example $host;
			proxy_cookie_path /app/ /; proxy_cookie_path ~*^/user/(.+) /u/$1; proxy_cookie_path ~^/kept/ /Kept/;
			proxy_cookie_flags plain secure httponly samesite=lax; proxy_cookie_flags ~^s nosecure nohttponly samesite=strict; proxy_cookie_flags none nosamesite;
			location / { proxy_pass http://B0; }
			location /off { proxy_cookie_domain off; proxy_cookie_path off; proxy_cookie_flags off; proxy_pass http://B0; }
			location /own { proxy_cookie_path / /own; proxy_pass http://B0; }`,
		requests: []string{
			"GET /|X-Do: b0=Set-Cookie:a=1;Domain=localhost;Path=/app/x", "GET /|X-Do: b0=Set-Cookie:a=1;Domain=.LOCALHOST;Path=/App/x",
			"GET /|X-Do: b0=Set-Cookie:a=1;domain=www.some.net;path=/USER/me;Max-Age=5", "GET /|X-Do: b0=Set-Cookie:a=1;Domain=var.example;Path=/kept/x",
			"GET /|X-Do: b0=Set-Cookie:plain=1", "GET /|X-Do: b0=Set-Cookie:plain=1;Secure;SameSite=None;Path=/x", "GET /|X-Do: b0=Set-Cookie:PLAIN=1;HttpOnly",
			"GET /|X-Do: b0=Set-Cookie:session=1;Secure;HttpOnly", "GET /|X-Do: b0=Set-Cookie:none=1;samesite=lax;Secure", "GET /|X-Do: b0=Set-Cookie:a=1;Domain=other;Path=/other",
			"GET /|X-Do: b0=Set-Cookie:a=1;Path=/app/ b0=Set-Cookie:plain=2;Path=/app/y", "GET /off|X-Do: b0=Set-Cookie:plain=1;Domain=localhost;Path=/app/x",
			"GET /own|X-Do: b0=Set-Cookie:plain=1;Domain=localhost;Path=/app/x", "GET /|X-Do: b0=Set-Cookie:a;Domain;Path", "GET /|X-Do: b0=Set-Cookie:a=;Domain=;Path=",
			"GET /|X-Do: b0=Set-Cookie:plain=1;samesite=strict;secure;httponly;x", "GET /|X-Do: b0=Set-Cookie:plain=1;SECURE;Secure;SameSite",
		},
	},
	{
		name: "a location believes others about the client's address",
		http: `real_ip_header X-Forwarded-For;`,
		server: `proxy_set_header X-Seen "$remote_addr $realip_remote_addr"; proxy_pass_request_headers off;
			location /a { set_real_ip_from 127.0.0.1; proxy_pass http://B0; }
			location /rec { set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; real_ip_recursive on; proxy_pass http://B0; }
			location /own { set_real_ip_from 127.0.0.1; real_ip_header X-Mine; proxy_pass http://B0; location /own/in { proxy_pass http://B1; } }
			location /not { proxy_pass http://B0; }
			location /deny { set_real_ip_from 127.0.0.1; deny 192.0.2.1; proxy_pass http://B0; }
			location /early { set_real_ip_from 127.0.0.1; return 200 "$remote_addr"; }`,
		requests: []string{
			"GET /a|X-Forwarded-For: 192.0.2.1, 192.0.2.2", "GET /rec|X-Forwarded-For: 192.0.2.1, 192.0.2.2, 10.1.1.1", "GET /own|X-Mine: 192.0.2.9|X-Forwarded-For: 192.0.2.1",
			"GET /own/in|X-Mine: 192.0.2.9", "GET /not|X-Forwarded-For: 192.0.2.1", "GET /deny|X-Forwarded-For: 192.0.2.1", "GET /deny|X-Forwarded-For: 192.0.2.2",
			"GET /early|X-Forwarded-For: 192.0.2.1",
		},
	},
	{
		name:     "alias in a location of a regular expression is the whole name of the file",
		server:   `location ~ ^/get/(\w+)/(.*)$ { alias DIR/$1/files/$2; } location ~ ^/one/ { alias DIR/a/files/x.txt; }`,
		files:    map[string]string{"a/files/x.txt": "ax", "a/files/index.html": "index", "b/files/y.html": "by"},
		requests: []string{"GET /get/a/x.txt", "GET /get/b/y.html", "GET /get/b/none", "GET /one/other"},
	},
	{
		name:     "redirects without the port, and defaults that are written",
		http:     `gzip off; charset off; large_client_header_buffers 4 8k; chunked_transfer_encoding on;`,
		server:   `port_in_redirect off; satisfy all; location /r { return 302 /x; } location /port { port_in_redirect on; return 302 /x; } location /d/ { proxy_pass http://B0; }`,
		requests: []string{"GET /r", "GET /port", "GET /d"},
	},
	// variables
	{
		name: "variables of bodies, lengths and limits",
		log: `$status "$request_body" $upstream_response_length $request_completion $upstream_cache_status $limit_rate $http2 $request_length ` +
			`$connection_requests $content_length $gzip_ratio $realpath_root`,
		server: `client_max_body_size 1m; location / { proxy_pass http://B0; proxy_set_header X-Body "$request_body"; } location /small { client_body_buffer_size 4; proxy_pass http://B0; }
			location /return { return 200 "[$request_body]"; } location /rate { set $limit_rate 4k; return 200 "$limit_rate"; } location /rate2 { limit_rate 2k; return 200 "$limit_rate"; }
			location /two { proxy_next_upstream http_503; proxy_pass http://app; } location /dead { proxy_pass http://DEAD; }`,
		http: `upstream app { server B0 max_fails=0; server B1 max_fails=0; }`,
		requests: []string{
			"POST /|<hello", "POST /|<", "GET /", "POST /small|<abcd", "POST /return|<hello", "GET /rate", "GET /rate2",
			"GET /two|X-Do: b0=503", "GET /dead", "GET /none", `POST /|<quote " and \`, "HEAD /",
		},
	},
	{
		name: "variables of time",
		log:  `$status $msec $time_local $time_iso8601 $request_time $request_id $upstream_connect_time $upstream_header_time $upstream_response_time $connection_time`,
		http: `upstream app { server DEAD max_fails=0; server B0; }`,
		server: `location / { proxy_pass http://app; } location /id { return 200 "$request_id"; } location /silent { proxy_read_timeout 100ms; proxy_pass http://B0; }
			location /dead { proxy_pass http://DEAD; }`,
		mask:     aMoment,
		requests: []string{"GET /", "GET /", "GET /id", "GET /silent|X-Do: b0=silent", "GET /dead"},
	},
	{
		name:     "bytes that came from servers",
		log:      `$upstream_bytes_received $upstream_response_length`,
		server:   `location / { proxy_pass http://B0; }`,
		requests: []string{"GET /", "GET /long/target?with=args", "GET /|X-Do: b0=404"},
	},
	// balancing
	{
		name:     "hash consistent chooses by its key",
		http:     `upstream app { hash $arg_k consistent; server B0; server B1 weight=2; server B2; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: []string{"GET /?k=1", "GET /?k=2", "GET /?k=3", "GET /?k=foo", "GET /?k=a%20b", "GET /", "GET /?k=7", "GET /?k=8", "GET /?k=bar"},
	},
	{
		name:     "least_conn prefers a server with fewer requests, for its weight",
		http:     `upstream app { least_conn; server B0 weight=3; server B1; server B2 backup; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: repeated("GET /", 8),
	},
}

func TestOptionsOfAnNginxConfigurationBehaveTheSameOnCaddy(t *testing.T) {
	for _, p := range optionPairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}
