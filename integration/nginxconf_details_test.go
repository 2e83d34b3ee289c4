// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// detailPairs are configurations with details that people's own have.
var detailPairs = []pair{
	{
		name:   "names of servers: a dot at the end, and groups of the name that has matched only",
		server: `return 200 "front $host $1";`,
		more: `server { listen FRONT; server_name example.com .example.org "~^www\d+\.(example)\.(com|org)$"; return 200 "$server_name $host $1 $2"; }
			server { listen FRONT; server_name ~^(?<who>.+)\.tenant\.net$ static.tenant.net; return 200 "tenant $who $1"; } server { listen FRONT; server_name www.*; return 200 "www $host"; } server { listen FRONT; server_name ""; return 200 "empty [$host]"; }`,
		requests: []string{
			"GET /|Host: example.com", "GET /|Host: example.com.", "GET /|Host: EXAMPLE.com.:81", "GET /|Host: a.example.org.", "GET /|Host: www1.example.com", "GET /|Host: WWW1.example.com.", "GET /|Host: www1.example.org",
			"GET /|Host: acme.tenant.net.", "GET /|Host: static.tenant.net", "GET /|Host: www.", "GET /|Host: www.x", "GET /|Host: www.x.y.", "GET /|Host: front.example.", "GET /|Host: nothing.", "GET /|Host: [::1]:80",
		},
	},
	{
		name:     "groups of the name of a server that is alone",
		server:   `server_name front.example "~^(?<sub>\w+)\.example$" *.front.example; location / { return 200 "$sub $1 $host"; }`,
		requests: []string{"GET /", "GET /|Host: acme.example.", "GET /|Host: a.front.example", "GET /|Host: other", "GET /|Host: ACME.example:80"},
	},
	{
		name: "quotes, escapes, dollars and braces",
		http: `map $uri $q { default "a b"; "/x y" 'z'; /semi\;colon s; ~\.(?<ext>png|jpg)$ "$ext"; }`,
		server: `location "/quo ted" { return 200 "quoted"; } location / { return 200 "q=$q dollar=\$5 \$uri ${uri}x {x} {nginx.host} \{ \"in\" \\back \t tab"; } location ~ "^/re{2,3}/\d+$" { return 200 'brace'; }
			location ~ ^/esc\.a\"b { return 200 "esc"; } location /var { set $v '$uri'; set $w "${v}_$v\$v"; return 200 $w; } location /semi { return 200 "a;b}c{d#e"; } location /hash#tag { return 200 h#ash; } # comment { with ; braces }
			location /multi { add_header X-Multi "one" # between
				always
				;
				return 200
					"multi"; }`,
		requests: []string{"GET /", "GET /x%20y", "GET /quo%20ted", "GET /ree/12", "GET /reee/12", "GET /re/12", "GET /a.png", `GET /esc.a"b`, "GET /semi;colon", "GET /var", "GET /semi", "GET /hash%23tag", "GET /multi"},
	},
	{
		name:   "lines of the header that are too long",
		server: `location / { return 200 "ok"; } location /own { return 200; } error_page 414 /414; location = /414 { return 200 "own 414"; }`,
		requests: []string{
			"GET /" + strings.Repeat("u", 8192-len("GET / HTTP/1.1\r\n")), "GET /" + strings.Repeat("u", 8192-len("GET / HTTP/1.1\r\n")+1), "GET /|X-A: " + strings.Repeat("a", 8192-len("X-A: \r\n")), "GET /|X-A: " + strings.Repeat("a", 8192-len("X-A: \r\n")+1),
			"GET /|Cookie: a=" + strings.Repeat("a", 9000),
		},
	},
	{
		name:     "lines of the header that are longer than those allowed",
		server:   `large_client_header_buffers 4 2k; error_page 494 = @long; location @long { return 431 "too long"; } location / { return 200 "ok"; }`,
		requests: []string{"GET /?" + strings.Repeat("u", 1500), "GET /?" + strings.Repeat("u", 2100), "GET /|Cookie: " + strings.Repeat("u", 1500), "GET /|Cookie: " + strings.Repeat("u", 2100)},
	},
	{
		name:     "files and methods",
		server:   `root DIR/www; location /auto/ { add_header X-Auto 1 always; proxy_pass http://B0; }`,
		files:    map[string]string{"www/a.txt": "a"},
		requests: []string{"PUT /none|<x", "DELETE /none", "FOO /a.txt", "POST /none|<x", "POST /a.txt|<x", "OPTIONS /", "GET /auto", "PUT /auto|<x"},
	},
	{
		name:     "a variable that has not been set is empty",
		log:      `$status [$later] [$named] [$never] [$inif]`,
		server:   `location / { set $never 1; return 200 "[$later]"; } location /set { set $later "$later+"; return 200 "[$later]"; } location ~ ^/n/(?<named>.*)$ { return 200 "$named"; } location /if { if ($arg_a) { set $inif 1; } return 200; }`,
		requests: []string{"GET /", "GET /set", "GET /n/", "GET /n/a", "GET /if", "GET /if?a=1", "TRACE /"},
	},
	{
		name: "conditions of requests for files",
		server: `root DIR/www; add_header X-A 1; add_header X-Always 2 always; error_page 412 /412; location = /412 { return 200 "own 412"; } location / { } location /text { return 200 "text"; }
			location /e { error_page 404 =200 /a.txt; return 404; } location /f { error_page 404 /a.txt; return 404; }`,
		files:    map[string]string{"www/a.txt": "0123456789abcdef", "www/empty": ""},
		modified: time.Unix(1700000000, 0), // "6553f100-10"
		requests: []string{
			"GET /a.txt|If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT", "GET /a.txt|If-Modified-Since: Tue, 14 Nov 2023 22:13:21 GMT", "GET /a.txt|If-Modified-Since: nonsense",
			`GET /a.txt|If-None-Match: "6553f100-10"`, `GET /a.txt|If-None-Match: W/"x", W/"6553f100-10"`, "GET /a.txt|If-None-Match: *", `GET /a.txt|If-None-Match: "x"`,
			`GET /a.txt|If-None-Match: "6553f100-10"|If-Modified-Since: Tue, 14 Nov 2023 22:13:19 GMT`, `GET /a.txt|If-None-Match: "x"|If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT`,
			`GET /a.txt|If-Match: "6553f100-10"`, `GET /a.txt|If-Match: W/"6553f100-10"`, `GET /a.txt|If-Match: "x"`, "GET /a.txt|If-Match: *",
			"GET /a.txt|If-Unmodified-Since: Tue, 14 Nov 2023 22:13:20 GMT", "GET /a.txt|If-Unmodified-Since: Tue, 14 Nov 2023 22:13:19 GMT", "GET /a.txt|If-Unmodified-Since: x",
			"HEAD /a.txt|If-None-Match: *", "GET /text|If-None-Match: *", "GET /text|If-Match: x", "GET /text|If-Unmodified-Since: Tue, 14 Nov 2035 22:13:20 GMT", "GET /text|If-Modified-Since: Tue, 14 Nov 2035 22:13:20 GMT",
			"GET /e|If-None-Match: *", "GET /f|If-None-Match: *", "GET /f|Range: bytes=0-1", "GET /e|Range: bytes=0-1", "GET /none|If-None-Match: *",
		},
	},
	{
		name:     "ranges of files",
		server:   `root DIR/www; add_header X-A 1; add_header X-Always 2 always; location / { } location /own { error_page 416 /416; alias DIR/www; } location = /416 { return 200 "own"; }`,
		files:    map[string]string{"www/a.txt": "0123456789abcdef", "www/empty": ""},
		modified: time.Unix(1700000000, 0),
		mask:     regexp.MustCompile(`\d{20}`), // the boundary
		requests: []string{
			"GET /a.txt|Range: bytes=0-3", "GET /a.txt|Range: bytes=3-", "GET /a.txt|Range: bytes=-4", "GET /a.txt|Range: BYTES= 2 - 5 ", "GET /a.txt|Range: bytes=0-", "GET /a.txt|Range: bytes=0-100", "GET /a.txt|Range: bytes=-100",
			"GET /a.txt|Range: bytes=100-", "GET /a.txt|Range: bytes=3-1", "GET /a.txt|Range: bytes=x", "GET /a.txt|Range: chars=0-1", "GET /a.txt|Range: bytes=", "GET /a.txt|Range: bytes=-", "GET /a.txt|Range: bytes=-0", "GET /a.txt|Range: bytes=+1-2",
			"GET /a.txt|Range: bytes=0-1,3-4", "GET /a.txt|Range: bytes=0-1, -2", "GET /a.txt|Range: bytes=0-1,100-", "GET /a.txt|Range: bytes=0-9,0-9", "GET /a.txt|Range: bytes=0-1,x", "GET /a.txt|Range: bytes=0-99999999999999999999",
			`GET /a.txt|Range: bytes=0-1|If-Range: "6553f100-10"`, `GET /a.txt|Range: bytes=0-1|If-Range: "x"`, "GET /a.txt|Range: bytes=0-1|If-Range: Tue, 14 Nov 2023 22:13:20 GMT", "GET /a.txt|Range: bytes=0-1|If-Range: Tue, 14 Nov 2023 22:13:21 GMT",
			"HEAD /a.txt|Range: bytes=0-1", "HEAD /a.txt|Range: bytes=99-", "HEAD /a.txt|Range: bytes=0-1,3-4", "GET /empty|Range: bytes=0-", "GET /empty|Range: bytes=1-", "GET /empty", "GET /own/a.txt|Range: bytes=99-", "GET /none|Range: bytes=0-1", "POST /a.txt|Range: bytes=0-1|<x",
		},
	},
	{
		name:   "methods that no location sees",
		server: `error_page 405 = @405; location @405 { return 405 "not $request_method"; } location / { proxy_pass http://B0; } location /r { return 301 /x; }`,
		requests: []string{
			"TRACE /", "TRACE /r", "CONNECT /", "get /", "Get /r", "FOO-BAR /", "M_SEARCH /", "OPTIONS /",
		},
	},
	{
		name:     "a request without a path has no named error page",
		server:   `error_page 400 = @400; location @400 { return 200 "bad"; } location / { error_page 404 = @400; return 404; }`,
		requests: []string{"GET /../x", "GET /%00", "GET /x"},
	},
	{
		name:     "the absolute form of a target",
		log:      `$status "$request" $request_uri $uri "$args"`,
		server:   `location / { proxy_pass http://B0; } location = /r { return 301 https://$host$request_uri; }`,
		requests: []string{"GET http://front.example/a?b=c", "GET http://front.example", "GET http://front.example/", "GET http://front.example?q=a/b", "GET http://front.example/r?x"},
	},
	{
		name: "empty values are not missing ones",
		log:  `$status [$args] [$query_string] [$https] [$host] [$http_x_a] [$http_x_none] [$http_x_forwarded_for] [$http_cookie] [$arg_a] [$arg_none] [$cookie_c] [$upstream_addr] [$upstream_status] [$v] [$is_args] [$server_name]`,
		http: `map $arg_none $v { default ""; }`,
		server: `client_max_body_size 2; location / { proxy_pass http://B0; } location /try { root DIR; try_files /none /else; } location /tryargs { root DIR; try_files /none /else?$args; } location /else { return 200 "[$args]"; }
			location /drop { rewrite ^ /else? last; } location /keep { rewrite ^ /else last; } location /add { rewrite ^ /else?$arg_none last; } location /set { set $args ""; return 200; } location /err { error_page 404 /else; return 404; }
			location /errargs { error_page 404 /else?$args; return 404; }`,
		requests: []string{
			"GET /", "GET /?", "GET /?a=", "GET /|X-A:|X-Forwarded-For:|Cookie: c=", "GET /|Cookie: a=1|Cookie: b=2|X-Forwarded-For: 1.1.1.1|X-Forwarded-For: 2.2.2.2", "GET /try", "GET /try?x=1", "GET /tryargs", "GET /tryargs?x=1", "GET /drop", "GET /drop?x=1",
			"GET /keep", "GET /keep?x=1", "GET /add", "GET /add?x=1", "GET /set?x=1", "GET /err", "GET /err?x=1", "GET /errargs", "GET /errargs?x=1", "POST /|<toolong",
		},
	},
	{
		name:     "try_files with the request's own target as its last word",
		server:   `root DIR/www; location / { try_files $uri /index.php$request_uri; } location ~ \.php(/|$) { proxy_pass http://B0; } location /page { try_files $uri /page.php?p=$uri&$args; }`,
		files:    map[string]string{"www/a.txt": "a"},
		requests: []string{"GET /a.txt?x=1", "GET /apps/files/?dir=/x&y=%2F", "GET /apps", "GET /a%20b/c?x=%20", "GET /page/x?z=1", "GET /page/x"},
	},
	{
		name: "captures of an expression that does not match are forgotten",
		server: `if ($request_method !~ ^(GET|POST)$) { return 405; } if ($args ~ ^x=(\d+)) { set $x $1; } location / { return 200 "$1|$x"; }
			location /a { if ($uri ~ ^/a/(.*)$) { set $y 1; } rewrite ^/nothing/(.*)$ /x; return 200 "$1|$y"; } location /b { if ($uri ~ ^/b/(.*)$) { set $y 1; } if ($uri ~ ^/b) { set $y 2; } return 200 "$1|$y"; }
			location /n { if ($uri ~ ^/n/(?<rest>.*)$) { set $y 1; } if ($arg_q ~ ^(?<other>z)) { set $y 2; } return 200 "$rest|$other|$1|$y"; } location ~ ^/l/(.+)$ { if ($arg_q = 1) { return 200 "if $1"; } return 200 "$1"; }`,
		requests: []string{"GET /", "GET /?x=12", "GET /a/b", "GET /b/c", "GET /n/m", "GET /n/m?q=z", "GET /l/m", "GET /l/m?q=1"},
	},
	{
		name:     "arguments that are set change the request that is passed on",
		server:   `location / { set $args "z=9&$args"; proxy_pass http://B0; } location /none { set $args ""; proxy_pass http://B0; } location /if { if ($arg_a) { set $args b=$arg_a; } proxy_pass http://B0; } location /path/ { set $args n=1; proxy_pass http://B0/p/; }`,
		requests: []string{"GET /x?a=1", "GET /x", "GET /a%20b?c", "GET /none?a=1", "GET /if?a=5", "GET /if?b=5", "GET /path/%20x?y"},
	},
	{
		name:     "escape=json changes what JSON cannot hold",
		escape:   "json",
		log:      `{"a":"$arg_a","b":"$http_x_b","ua":"$http_user_agent","uri":"$request_uri"}","none":"$arg_none"`,
		server:   `location / { return 200; }`,
		requests: []string{`GET /?a=1&b=<x>|X-B: it's "quoted" \ & <b>|User-Agent: é`, "GET /%20", "GET /|X-B: a\tb"},
	},
	{
		name:     "what says how to log in stays with the error page",
		server:   `proxy_intercept_errors on; error_page 401 403 404 /e; location = /e { internal; return 200 "own page\n"; } location / { proxy_pass http://B0; }`,
		requests: []string{`GET /|X-Do: b0=401 b0=WWW-Authenticate:Basic b0=X-Own:1`, "GET /|X-Do: b0=403 b0=WWW-Authenticate:Basic", "GET /|X-Do: b0=404"},
	},
	{
		name:     "add_header replaces ETag and Last-Modified",
		server:   `location / { add_header ETag '"own"'; add_header Last-Modified $http_x_date; add_header X-A 1; add_header X-A 2; proxy_pass http://B0; } location /none { add_header ETag ""; root DIR; }`,
		files:    map[string]string{"none.txt": "x"},
		requests: []string{`GET /|X-Do: b0=ETag:"1" b0=Last-Modified:x`, "GET /|X-Date: Tue, 14 Nov 2023 22:13:20 GMT", "GET /"},
	},
	{
		name:     "the status of a connection that is closed, and titles of pages",
		server:   `location /444 { return 444; } location ~ ^/(?<code>\d+)$ { proxy_intercept_errors on; error_page 401 402 406 409 410 411 412 415 421 = @page; proxy_pass http://B0; } location /e/401 { return 401; } location /e/303 { return 303 /x; } location /e/308 { return 308 /x; } location /e/507 { return 507; }`,
		requests: []string{"GET /e/401", "GET /e/303", "GET /e/308", "GET /e/507"},
	},
}

func TestDetailsOfAnNginxConfigurationAreTheSameOnCaddy(t *testing.T) {
	for _, p := range detailPairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}

func TestTheLogOfAnUpgradedOrClosedConnectionIsTheSameOnCaddy(t *testing.T) {
	t.Parallel()
	testnet.Need(t, "nginx")
	backend := testnet.NewTCP(t, func(c net.Conn, _ int) {
		r := bufferedConn(c)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		line, _ := r.ReadString('\n')
		fmt.Fprint(c, strings.Repeat(line, 3))
	}).Addr()
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	conf := `http { log_format l '$status $body_bytes_sent $connection_requests'; access_log DIR/access.log l;
	server { listen FRONT; listen OTHER;
		location / { proxy_pass http://` + backend + `; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }
		location /close { return 444; }
	} }
`
	conf = strings.ReplaceAll(conf, "DIR", dir)
	onBoth(t, conf, func(front, _ string) []string {
		before := lineCount(log)
		c, err := testnet.Dial(front)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.Conn.SetDeadline(time.Now().Add(30 * time.Second))
		_ = c.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		r := bufferedConn(c.Conn)
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c.Conn, "hello\n")
		got, err := io.ReadAll(r) // the server behind ends it, and so the whole
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exchangeOnce(front, "GET", "/close", nil, nil); err == nil {
			t.Error("a response to return 444")
		}
		lines := linesAfter(t, log, before, 2)
		slices.Sort(lines) // either may come first
		return append(lines, string(got))
	})
}

func lineCount(file string) int {
	text, _ := os.ReadFile(file)
	return strings.Count(string(text), "\n")
}

// linesAfter returns the n lines of a file behind those that it had before, as
// soon as they are there.
func linesAfter(t *testing.T, file string, before, n int) (lines []string) {
	t.Helper()
	testnet.Eventually(t, 30*time.Second, fmt.Sprintf("%d lines of the log", n), func() bool {
		text, _ := os.ReadFile(file)
		lines = strings.SplitAfter(string(text), "\n")
		return len(lines) == before+n+1
	})
	return lines[before : before+n]
}

func TestRedirectsOfARequestWithoutAHostNameTheAddress(t *testing.T) {
	t.Parallel()
	conf := `http { access_log off; server { listen FRONT; listen OTHER; server_name a.example; location / { return 302 /x; } location /dir/ { proxy_pass http://127.0.0.1:9; } } }
`
	onBoth(t, conf, func(front, _ string) []string {
		var out []string
		for _, target := range []string{"/", "/dir?a=b"} {
			c, err := testnet.Dial(front)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.Send("GET " + target + " HTTP/1.0\r\n\r\n")
			res, err := c.Receive("GET")
			out = append(out, fmt.Sprint(res.Status, strings.Replace(res.Get("Location"), front, "FRONT", 1), err))
		}
		return out
	})
}

// Go's server refuses it before any server block does; it is in the log all the same.
func TestARequestThatNoServerBlockSeesIsLogged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	conf := `http { log_format l '$status "$request"'; access_log ` + log + ` l; server { listen FRONT; listen OTHER; return 200; } }
`
	onBoth(t, conf, func(front, _ string) []string {
		before := lineCount(log)
		_, _ = exchangeOnce(front, "GET", "/x", []string{"Host: "}, nil)
		return linesAfter(t, log, before, 1)
	})
}
