// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import "testing"

// httpPairs are configurations with one idea each.
var httpPairs = []pair{
	{
		name:     "an exact location wins over a prefix and a regular expression",
		server:   `location / { return 200 "slash"; } location = /a { return 200 "exact"; } location /a { return 200 "prefix"; } location ~ ^/a$ { return 200 "regex"; }`,
		requests: []string{"GET /a", "GET /a/", "GET /ab", "GET /b", "GET /A"},
	},
	{
		name:     "the longest prefix is chosen, a regular expression before it",
		server:   `location / { return 200 "slash"; } location /img/ { return 200 "img"; } location /img/big/ { return 200 "big"; } location ~ \.png$ { return 200 "png"; } location ~* \.JPG$ { return 200 "jpg"; }`,
		requests: []string{"GET /img/x", "GET /img/big/x", "GET /img/x.png", "GET /img/big/x.jpg", "GET /x.PNG", "GET /x.jpg"},
	},
	{
		name:     "no regular expression is tried after a prefix that says so",
		server:   `location / { return 200 "slash"; } location ^~ /static/ { return 200 "static"; } location ~ \.png$ { return 200 "png"; } location /static/deep/ { return 200 "deep"; }`,
		requests: []string{"GET /static/x.png", "GET /static/deep/x.png", "GET /other/x.png", "GET /static/deep/x"},
	},
	{
		name:     "the first regular expression wins",
		server:   `location ~ ^/x { return 200 "one $1"; } location ~ ^/(x.*)$ { return 200 "two"; } location ~ ^/(?<rest>y.*)$ { return 200 "three $rest $1"; }`,
		requests: []string{"GET /xy", "GET /yz", "GET /z"},
	},
	{
		name:     "nested locations are chosen inside the outer one",
		server:   `location /a/ { location /a/b/ { return 200 "ab"; } location ~ c$ { return 200 "ac"; } return 200 "a"; } location ~ c$ { return 200 "c"; }`,
		requests: []string{"GET /a/x", "GET /a/b/x", "GET /a/xc", "GET /a/b/c", "GET /xc"},
	},
	{
		name:     "paths are decoded and cleaned before a location is chosen",
		server:   `location /a/ { return 200 "a $uri $request_uri"; } location / { return 200 "slash $uri"; }`,
		requests: []string{"GET /%61/x", "GET /b/../a/x", "GET //a//x", "GET /a/./x", "GET /a/%20?q=%20", "GET /a/..", "GET /../x", "GET /a%2Fx"},
	},
	{
		name:     "a path without its last slash is redirected to a proxied location",
		server:   `location /user/ { proxy_pass http://B0; } location /other/ { return 200 "x"; }`,
		requests: []string{"GET /user", "GET /user?a=1", "GET /user/", "GET /other"},
	},
	{
		name:     "named locations are reached by error pages",
		server:   `location / { error_page 404 = @back; return 404; } location @back { proxy_pass http://B0; }`,
		requests: []string{"GET /x?y=1", "POST /x|<body"},
	},
	// the four slash combinations
	{
		name:     "proxy_pass: slash and slash",
		server:   `location /a/ { proxy_pass http://B0/b/; }`,
		requests: []string{"GET /a/x?q=1", "GET /a/", "GET /a/x%20y", "GET /a/%2e%2e/a/z", "GET /a/x%3Fy"},
	},
	{
		name:     "proxy_pass: slash and no slash",
		server:   `location /a/ { proxy_pass http://B0/b; }`,
		requests: []string{"GET /a/x?q=1", "GET /a/"},
	},
	{
		name:     "proxy_pass: no slash and slash",
		server:   `location /a { proxy_pass http://B0/b/; }`,
		requests: []string{"GET /a/x?q=1", "GET /a", "GET /ax"},
	},
	{
		name:     "proxy_pass: no slash and no slash",
		server:   `location /a { proxy_pass http://B0/b; }`,
		requests: []string{"GET /a/x?q=1", "GET /a", "GET /ax"},
	},
	{
		name:     "proxy_pass without a path passes the request line on",
		server:   `location / { proxy_pass http://B0; }`,
		requests: []string{"GET /a//b/../c%20d?x=%41&y", "GET /?", "GET /a?b?c", "GET /%7Ea", "OPTIONS /x", "DELETE /x"},
	},
	{
		name:     "proxy_pass with variables in its path",
		server:   `location ~ ^/v/(.*)$ { proxy_pass http://B0/w/$1; } location /q { proxy_pass http://B0/q$is_args$args; } location /u { proxy_pass http://B0$request_uri; }`,
		requests: []string{"GET /v/a/b?c=1", "GET /q/x?a=1", "GET /q", "GET /u/%20x?a"},
	},
	{
		name:     "a rewritten path is passed on instead of that of proxy_pass",
		server:   `location /a/ { rewrite ^/a/(.*)$ /z/$1 break; proxy_pass http://B0/b/; } location /c/ { rewrite ^/c/(.*)$ /d/$1?n=1 break; proxy_pass http://B0; }`,
		requests: []string{"GET /a/x?q=1", "GET /a/x%20y", "GET /c/x?q=1"},
	},
	// headers
	{
		name:   "headers that are sent to a server by default",
		server: `location / { proxy_pass http://B0; }`,
		requests: []string{
			"GET /|X-A: 1|X-A: 2|User-Agent: me|X_B: 3|X.C: 4", "GET /|TE: trailers|Keep-Alive: 5|Upgrade: foo",
			"POST /|Content-Type: text/plain|<hello", "GET /|X-Forwarded-For: 1.2.3.4|Via: 1.1 me|X-Forwarded-Proto: https",
			"HEAD /x",
		},
	},
	{
		name:     "proxy_set_header replaces the headers of the client",
		server:   `proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header Accept-Encoding ""; location / { proxy_pass http://B0; }`,
		requests: []string{"GET /|Accept-Encoding: gzip|X-Real-IP: 9.9.9.9", "GET /|X-Forwarded-For: 1.2.3.4", "GET /|Host: FRONT.example:81"},
	},
	{
		name:     "proxy_set_header is inherited only by a level that has none",
		server:   `proxy_set_header X-Outer 1; location / { proxy_pass http://B0; } location /in { proxy_set_header X-Inner 2; proxy_pass http://B0; } location /host { proxy_set_header Host $http_host; proxy_pass http://B0; }`,
		requests: []string{"GET /", "GET /in", "GET /host", "GET /host|Host: a.b:99"},
	},
	{
		name:     "variables of the proxied server",
		server:   `location / { proxy_set_header X-P "$proxy_host $proxy_port"; proxy_pass http://B0; } location /app { proxy_set_header X-P "$proxy_host $proxy_port"; proxy_pass http://app; }`,
		http:     `upstream app { server B0; }`,
		requests: []string{"GET /", "GET /app"},
	},
	{
		name:     "headers of responses that are hidden, passed and added",
		server:   `add_header X-Added "yes $request_method"; add_header X-Always on always; location / { proxy_pass http://B0; proxy_hide_header X-Secret; } location /in { add_header X-Inner 1; proxy_pass http://B0; } location /e { return 404; }`,
		requests: []string{"GET /|X-Do: b0=X-Secret:1 b0=X-Accel-Expires:5 b0=X-Open:1", "GET /in", "GET /|X-Do: b0=404", "GET /e", "GET /|X-Do: b0=201"},
	},
	{
		name:   "redirects of servers are changed by default",
		server: `location /a/ { proxy_pass http://B0/b/; } location /c/ { proxy_pass http://B0; } location /d/ { proxy_redirect off; proxy_pass http://B0/; }`,
		requests: []string{
			"GET /a/|X-Do: b0=302 b0=Location:http://B0/b/x", "GET /a/|X-Do: b0=302 b0=Location:/b/x", "GET /c/|X-Do: b0=301 b0=Location:http://B0/c/x",
			"GET /d/|X-Do: b0=302 b0=Location:http://B0/x", "GET /a/|X-Do: b0=302 b0=Location:http://elsewhere/b/",
		},
	},
	{
		name:     "proxy_redirect with texts, variables and regular expressions",
		server:   `proxy_redirect http://one/ http://$host/1/; proxy_redirect ~^http://two(:\d+)?/(.*)$ /2/$2; proxy_redirect ~*FOUR/(\w) /4/$1; location / { proxy_pass http://B0; }`,
		requests: []string{"GET /|X-Do: b0=302 b0=Location:http://four/path", "GET /|X-Do: b0=302 b0=Location:http://one/x", "GET /|X-Do: b0=302 b0=Location:http://two:8000/x", "GET /|X-Do: b0=302 b0=Location:http://three/x"},
	},
	// next upstream
	{
		name:     "a server that refuses is skipped and then left out",
		http:     `upstream app { server DEAD; server B0; server B1; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: []string{"GET /1", "GET /2", "GET /3", "POST /4|<x"},
	},
	{
		name:     "a server that closes without an answer is replaced for requests that may be repeated",
		http:     `upstream app { server B0 max_fails=0; server B1 max_fails=0; }`,
		server:   `location / { proxy_pass http://app; } location /n/ { proxy_next_upstream error non_idempotent; proxy_pass http://app; } location /off { proxy_next_upstream off; proxy_pass http://app; }`,
		requests: []string{"GET /1|X-Do: b0=close", "GET /1b", "POST /2|X-Do: all=close|<x", "POST /n/3|X-Do: b0=close|<abc", "GET /off|X-Do: all=close", "PUT /4|X-Do: b0=close b1=close|<x"},
	},
	{
		name:     "statuses for which the next server is asked",
		http:     `upstream app { server B0 max_fails=0; server B1 max_fails=0; }`,
		server:   `proxy_next_upstream http_503 http_404; location / { proxy_pass http://app; } location /def { proxy_next_upstream error; proxy_pass http://app; }`,
		requests: []string{"GET /1|X-Do: b0=503", "GET /2|X-Do: all=503", "GET /3|X-Do: all=404", "GET /4|X-Do: b0=500 b1=500", "POST /5|X-Do: all=503|<x", "GET /def|X-Do: all=503"},
	},
	{
		name:     "the last listed status becomes 502 where a server is out",
		http:     `upstream app { server B0; server B1; }`,
		server:   `proxy_next_upstream http_500; location / { proxy_pass http://app; }`,
		requests: []string{"GET /1|X-Do: all=500", "GET /2|X-Do: all=500", "GET /3|X-Do: all=500"},
	},
	{
		name:     "the number of tries is limited",
		http:     `upstream app { server B0 max_fails=0; server B1 max_fails=0; server B2 max_fails=0; }`,
		server:   `proxy_next_upstream error http_503; proxy_next_upstream_tries 2; location / { proxy_pass http://app; }`,
		requests: []string{"GET /1|X-Do: all=503", "GET /2|X-Do: all=close", "GET /3"},
	},
	{
		name:     "backup servers are used when no other is left",
		http:     `upstream app { server DEAD; server B0 backup; server B1 backup; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: []string{"GET /1", "GET /2", "GET /3"},
	},
	{
		name:     "no live upstreams",
		http:     `upstream app { server DEAD; server DEAD; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: []string{"GET /1", "GET /2"},
	},
	{
		name:     "a silent server is a timeout",
		http:     `upstream app { server B0 max_fails=0; server B1 max_fails=0; }`,
		server:   `proxy_read_timeout 200ms; location / { proxy_pass http://app; } location /one { proxy_pass http://B0; }`,
		requests: []string{"GET /1|X-Do: b0=silent", "GET /one|X-Do: b0=silent"},
	},
	// balancing
	{
		name:     "weights give the smooth order",
		http:     `upstream app { server B0 weight=5; server B1; server B2; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: repeated("GET /", 14),
	},
	{
		name:     "least_conn takes the idle servers in turn",
		http:     `upstream app { least_conn; server B0; server B1 weight=2; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: repeated("GET /", 6),
	},
	{
		name:     "hash chooses by its key",
		http:     `upstream app { hash $arg_k; server B0; server B1 weight=2; server B2; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: []string{"GET /?k=1", "GET /?k=2", "GET /?k=3", "GET /?k=foo", "GET /?k=a%20b", "GET /", "GET /x"},
	},
	{
		name:     "ip_hash chooses by the client's network",
		http:     `upstream app { server B0; server B1; server B2; ip_hash; } set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;`,
		server:   `location / { proxy_pass http://app; }`,
		requests: []string{"GET /", "GET /|X-Real-IP: 10.1.2.3", "GET /|X-Real-IP: 10.1.2.200", "GET /|X-Real-IP: 192.168.1.7", "GET /|X-Real-IP: 203.0.113.9"},
	},
	{
		name:     "a server that is down is not used",
		http:     `upstream app { server B0 down; server B1; server B2; }`,
		server:   `location / { proxy_pass http://app; }`,
		requests: repeated("GET /", 4),
	},
	{
		name:     "locations of one upstream share its state",
		http:     `upstream app { server B0; server B1; }`,
		server:   `location /a { proxy_pass http://app; } location /b { proxy_pass http://app/x; }`,
		requests: []string{"GET /a", "GET /b", "GET /b", "GET /a"},
	},
	// keepalive
	{
		name:     "without keepalive each request has its connection",
		http:     `upstream app { server B0; }`,
		server:   `location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; } location /i { proxy_pass http://B1; }`,
		requests: append(repeated("GET /", 3), repeated("GET /i", 2)...),
	},
	{
		// nginx asks the second and third servers to close, and keeps a connection
		// unless the response says that it is the last. With a server that closes
		// without saying so it is chance whether nginx sees that before it sends the
		// next request: these say so, as servers do.
		name:     "keepalive keeps connections where the requests allow it",
		http:     `upstream app { server B0; keepalive 4; } upstream old { server B1; keepalive 4; } upstream said { server B2; keepalive 4; }`,
		server:   `location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; } location /old { proxy_pass http://old; } location /said { proxy_http_version 1.1; proxy_pass http://said; }`,
		requests: append(append(repeated("GET /", 3), repeated("GET /old|X-Do: b1=Connection:close", 2)...), repeated("GET /said|X-Do: b2=Connection:close", 2)...),
	},
	{
		name:     "keepalive_requests limits the use of a connection",
		http:     `upstream app { server B0; keepalive 4; keepalive_requests 2; }`,
		server:   `proxy_http_version 1.1; proxy_set_header Connection ""; location / { proxy_pass http://app; }`,
		requests: repeated("GET /", 5),
	},
	// return, rewrite, if, set
	{
		name:     "return with texts, redirects and statuses",
		server:   `location /t { return 200 "text $arg_a"; } location /r { return 302 /else; } location /p { return 301 http://x/$uri; } location /n { return 204; } location /f { return 403; } location /m { return 404 "own"; } location /u { return http://y/; } location /308 { return 308 /q; } location /418 { return 418; }`,
		requests: []string{"GET /t?a=1", "HEAD /t", "GET /r", "GET /p", "GET /n", "GET /f", "GET /m", "GET /u", "POST /308", "GET /418"},
	},
	{
		name:     "return 444 closes the connection",
		server:   `location / { return 444; }`,
		requests: []string{"GET /"},
	},
	{
		name:     "rewrite with last, break, redirect and permanent",
		server:   `location /a { rewrite ^/a/(.*)$ /b/$1 last; return 200 "a"; } location /b { return 200 "b $uri $args"; } location /c { rewrite ^/c/(.*)$ /b/$1 break; return 200 "c $uri"; } location /d { rewrite ^/d/(.*)$ /x/$1 redirect; } location /e { rewrite ^/e/(.*)$ http://other/$1? permanent; } location /g { rewrite ^/g/(.*)$ /b?a=$1 last; }`,
		requests: []string{"GET /a/1?q=2", "GET /a", "GET /c/1", "GET /d/1?q=2", "GET /e/1?q=2", "GET /a/%20x", "GET /d/a%20b%3Fc%2Fd", "GET /e/a%20b", "GET /g/a%26b?x=1"},
	},
	{
		name:     "rewrite rules of the server run before the location is chosen",
		server:   `rewrite ^/old/(.*)$ /new/$1?from=old; rewrite ^/loop /loop last; location /new { return 200 "$uri $args"; } location / { return 200 "slash"; }`,
		requests: []string{"GET /old/x?a=1", "GET /new/y", "GET /z"},
	},
	{
		name:     "a rewrite cycle ends in an error",
		server:   `location /l { rewrite ^/l(.*)$ /l$1 last; }`,
		requests: []string{"GET /l"},
	},
	{
		name:     "if compares texts, expressions and files",
		server:   `set $r 0; if ($arg_a) { set $r "${r}a"; } if ($arg_b = x) { set $r "${r}b"; } if ($arg_b != x) { set $r "${r}n"; } if ($http_user_agent ~* (curl|wget)) { set $r "${r}$1"; } if ($request_method !~ ^GET$) { set $r "${r}m"; } if (-f DIR/f.txt) { set $r "${r}f"; } if (!-e DIR/none) { set $r "${r}!"; } location / { return 200 $r; }`,
		files:    map[string]string{"f.txt": "x"},
		requests: []string{"GET /", "GET /?a=1", "GET /?a=0&b=x", "GET /|User-Agent: Curl/8", "PUT /"},
	},
	{
		name:     "if in a location changes its settings",
		server:   `location / { set $x 1; add_header X-Loc 1; if ($arg_b) { proxy_pass http://B1; } if ($arg_h) { add_header X-If 2; } proxy_pass http://B0; }`,
		requests: []string{"GET /", "GET /?b=1", "GET /?h=1", "GET /?b=1&h=1"},
	},
	// errors
	{
		name:     "error pages: internal, named, other status, redirect",
		server:   `location / { return 200 "slash"; } location /a { error_page 404 /e.html; return 404; } location /b { error_page 403 =200 /e.html; return 403; } location /c { error_page 500 = /code; return 500; } location /d { error_page 404 http://other/; return 404; } location /f { error_page 404 =301 http://other/; return 404; } location = /e.html { return 200 "page $uri"; } location /code { return 202 "code"; }`,
		requests: []string{"GET /a", "GET /b", "GET /c", "GET /d", "GET /f", "GET /e.html", "HEAD /a"},
	},
	{
		name:     "errors of servers are intercepted",
		server:   `proxy_intercept_errors on; error_page 404 /nf; error_page 502 503 =200 @bad; location / { proxy_pass http://B0; } location = /nf { internal; return 200 "nf $upstream_addr"; } location @bad { return 200 "bad $upstream_status\n"; } location /off { proxy_intercept_errors off; proxy_pass http://B0; } location /dead { proxy_pass http://DEAD; }`,
		requests: []string{"GET /x|X-Do: b0=404", "GET /x|X-Do: b0=503", "GET /x|X-Do: b0=500", "GET /off|X-Do: b0=404", "GET /dead", "GET /nf", "GET /x"},
	},
	{
		name:     "an error of an error page is final unless recursive",
		server:   `location /a { error_page 404 /b; return 404; } location /b { error_page 403 /c; return 403; } location /c { return 200 "c"; } location /r { error_page 404 /s; recursive_error_pages on; return 404; } location /s { recursive_error_pages on; error_page 403 /c; return 403; }`,
		requests: []string{"GET /a", "GET /r"},
	},
	{
		name:     "the built-in error pages",
		server:   `location ~ ^/(\d+)$ { proxy_pass http://B0; } location /dead { proxy_pass http://DEAD; } location /t { proxy_read_timeout 100ms; proxy_pass http://B0; } location /405 { return 405; } location /503 { return 503; } location /413 { client_max_body_size 3; proxy_pass http://B0; }`,
		requests: []string{"GET /dead", "GET /t|X-Do: b0=silent", "GET /405", "GET /503", "POST /413|<long body", "GET /none"},
	},
	{
		name:     "X-Accel-Redirect goes to another location",
		server:   `location / { proxy_pass http://B0; } location /in/ { internal; proxy_pass http://B1/; add_header X-In 1; }`,
		requests: []string{"GET /x|X-Do: b0=X-Accel-Redirect:/in/f?a=1", "GET /in/f", "GET /y"},
	},
	// variables
	{
		name:     "variables of the request",
		server:   `location / { return 200 "$request_method $scheme $host $http_host $server_name $request_uri $uri $args $is_args $arg_a $arg_A $cookie_c $http_x_y $content_type $content_length $server_protocol $remote_addr $query_string $document_uri $request"; }`,
		requests: []string{"GET /p%20q?a=1&b=%20|Cookie: b=1; c=2|X-Y: z", "POST /|Host: UP.example:123|Content-Type: a/b|<abc", "GET /?A=2|Cookie: c=x=y"},
	},
	{
		name:     "map with texts, wildcards and expressions",
		http:     `map $host $site { hostnames; default none; front.example front; *.wild.org wild; ~^(?<sub>\w+)\.re\.net$ "re $sub"; } map $arg_a $two { default $arg_b; 1 one; }`,
		server:   `location / { return 200 "$site $two"; }`,
		requests: []string{"GET /?a=1", "GET /?a=2&b=x|Host: a.b.wild.org", "GET /|Host: x.re.net", "GET /|Host: other"},
	},
	{
		name:     "geo and split_clients",
		http:     `geo $net { default out; 127.0.0.0/8 loop; } geo $arg_ip $g { default d; 10.0.0.0/8 ten; 10.1.0.0/16 one; } split_clients $arg_k $part { 51.2% first; 10% second; * rest; }`,
		server:   `location / { return 200 "$net $g $part"; }`,
		requests: []string{"GET /?ip=10.1.2.3&k=1", "GET /?ip=10.9.9.9&k=2", "GET /?ip=x&k=3", "GET /?k=4", "GET /?k=5"},
	},
	{
		name:     "an upstream chosen by a map",
		http:     `upstream app { server B0; } map $arg_u $to { default app; lit B1; bad nowhere; }`,
		server:   `location / { proxy_set_header X-Host $proxy_host; proxy_pass http://$to; } location /p/ { proxy_pass http://$to/q$uri; }`,
		requests: []string{"GET /a?u=1", "GET /b?u=lit", "GET /p/x?u=lit", "GET /c?u=bad"},
	},
	// server choice
	{
		name:     "servers are chosen by name",
		server:   `location / { return 200 "front"; }`,
		more:     `server { listen FRONT; server_name exact.org; return 200 "exact"; } server { listen FRONT; server_name *.org; return 200 "star $server_name"; } server { listen FRONT; server_name a.*; return 200 "trail"; } server { listen FRONT; server_name ~^(?<w>\w+)\.net$; return 200 "re $w"; } server { listen FRONT; server_name .dot.com; return 200 "dot"; } server { listen FRONT; server_name *.long.org; return 200 "long"; }`,
		requests: []string{"GET /|Host: exact.org", "GET /|Host: x.org", "GET /|Host: x.y.org", "GET /|Host: a.org", "GET /|Host: a.b.c", "GET /|Host: foo.net", "GET /|Host: dot.com", "GET /|Host: x.y.dot.com", "GET /|Host: q.long.org", "GET /|Host: EXACT.org:99", "GET /|Host: nothing", "GET /|Host: front.example"},
	},
	{
		name:     "a default server is chosen for unknown names",
		server:   `return 200 "first";`,
		more:     `server { listen FRONT default_server; server_name second; return 200 "second"; }`,
		requests: []string{"GET /|Host: front.example", "GET /|Host: second", "GET /|Host: other"},
	},
	// access, realip, limits
	{
		name:     "allow and deny",
		server:   `location /a { deny all; return 200; } location /b { allow 127.0.0.0/8; deny all; proxy_pass http://B0; } location /c { deny 127.0.0.1; allow all; proxy_pass http://B0; } location /d { deny all; error_page 403 /b; proxy_pass http://B0; }`,
		requests: []string{"GET /a", "GET /b", "GET /c", "GET /d"},
	},
	{
		name:     "the client's address behind a trusted proxy",
		server:   `set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; location / { return 200 "$remote_addr $realip_remote_addr"; } location /d { deny 1.2.3.4; proxy_set_header X-F $proxy_add_x_forwarded_for; proxy_pass http://B0; }`,
		requests: []string{"GET /|X-Forwarded-For: 1.2.3.4", "GET /|X-Forwarded-For: 1.2.3.4, 10.0.0.1", "GET /", "GET /|X-Forwarded-For: bad", "GET /d|X-Forwarded-For: 1.2.3.4", "GET /d|X-Forwarded-For: 5.6.7.8"},
	},
	{
		name:     "the client's address found recursively",
		server:   `set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on; location / { return 200 "$remote_addr"; }`,
		requests: []string{"GET /|X-Forwarded-For: 1.2.3.4, 10.0.0.1, 10.0.0.2", "GET /|X-Forwarded-For: 10.0.0.9, 10.0.0.1"},
	},
	// files
	{
		name:     "files, indexes and folders",
		server:   `root DIR/www; location /alias/ { alias DIR/other/; } location /idx/ { index b.html a.html; }`,
		files:    map[string]string{"www/index.html": "home", "www/a.txt": "text a", "www/sub/index.html": "sub", "www/empty/x": "", "other/o.html": "<o>", "www/idx/a.html": "ia"},
		requests: []string{"GET /", "GET /a.txt", "GET /sub", "GET /sub/", "GET /empty/", "GET /none", "GET /alias/o.html", "GET /idx/", "POST /a.txt|<x", "HEAD /a.txt", "GET /sub?x=1", "GET /a.txt/", "GET /a.txt|Range: bytes=0-3"},
	},
	{
		name:     "try_files",
		server:   `root DIR/www; location / { try_files $uri $uri/ /index.html; } location /p { try_files $uri @p; } location @p { proxy_pass http://B0; } location /c { try_files $uri =404; }`,
		files:    map[string]string{"www/index.html": "home", "www/a.txt": "a", "www/d/index.html": "d", "www/p.txt": "p"},
		requests: []string{"GET /a.txt", "GET /nope", "GET /d/", "GET /p.txt", "GET /p/x?y=1", "GET /c", "GET /d"},
	},
	{
		name:     "types of files",
		http:     `types { text/html html; text/css css; application/x-own own; } default_type application/octet-stream;`,
		server:   `root DIR; location /t { return 200 "x"; } location = /r.css { return 200 "x"; }`,
		files:    map[string]string{"a.css": "c", "b.own": "o", "c.other": "x", "D.HTML": "h"},
		requests: []string{"GET /a.css", "GET /b.own", "GET /c.other", "GET /D.HTML", "GET /t", "GET /r.css"},
	},
	// bodies
	{
		name:     "request bodies with and without buffering",
		server:   `location / { proxy_pass http://B0; } location /u { proxy_request_buffering off; proxy_http_version 1.1; proxy_pass http://B0; }`,
		requests: []string{"POST /|X-Do: b0=echo|<hello body", "POST /u|X-Do: b0=echo|<hello body", "PUT /|<", "POST /|Content-Length: 0"},
	},
	{
		name:     "responses without buffering",
		server:   `proxy_buffering off; location / { proxy_pass http://B0; }`,
		requests: []string{"GET /", "GET /|X-Do: b0=404", "HEAD /"},
	},
}

func repeated(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestAnNginxConfigurationBehavesTheSameOnCaddy(t *testing.T) {
	for _, p := range httpPairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}
