// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// The files in testdata/nginx are whole configurations as people have them, each
// with many features, other files after %%file NAME, and after %%requests HOST
// requests in the form of those of a pair; TLS and CERT before one mean the second
// address with TLS, and with a certificate of the client.
//
// In them @F1@ and @F2@ are addresses to listen on, @B0@ to @B3@ backends, @DEAD@
// refuses, @DIR@ is a folder with logs in its folder logs.
func TestConfigurationsAsPeopleHaveThemBehaveTheSameOnCaddy(t *testing.T) {
	files, err := filepath.Glob("testdata/nginx/*.conf")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d configurations, want at least 15: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".conf"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			newReal(t, string(text)).run(t)
		})
	}
}

// edges are requests that every configuration gets.
var edges = []string{
	"GET /", "GET /?a=1&b=%20x&c", "GET /index.html", "HEAD /", "OPTIONS /", "GET //", "GET /a//b", "GET /../x", "GET /a/../b/", "GET /a%2fb", "GET /a%2Fb/", "GET /%00", "GET /a%20b",
	`GET /a?x=%2F?&y={z}"`, "GET /caf%C3%A9", "GET /a/./b/.", "GET /a/..", "GET /a%2e%2e/b", "GET /a+b", "GET /a;b=c", "GET /a%3Fb", "GET /a%23b", "GET /a#b", "GET /favicon.ico", "GET /.git/config",
	"GET /.well-known/x", "POST /|Content-Type: application/x-www-form-urlencoded|<a=1&b=2", "PUT /x|<", "DELETE /x", "PATCH /x|<p", "FOO /x", "TRACE /", "CONNECT /", "GET http://HOST/abs?q", "GET http://HOST?q=1",
	"GET /p|Host: HOST:8080", "GET /p|Host: HOST.", "GET /p|Host: UPPER", "GET /p|Host: unknown.invalid", "GET /p|Host: 127.0.0.1", "GET /p|Host: [::1]:80", "GET /p|Host: a_b.example",
	"GET /p|X-Long: " + strings.Repeat("a", 6000), "GET /p|X-Long: " + strings.Repeat("a", 9000), "GET /" + strings.Repeat("u", 9000), "GET /p|Range: bytes=0-3", "GET /p|If-Modified-Since: Mon, 01 Jan 2035 00:00:00 GMT",
	"GET /p|X-A: café", "GET /p|Cookie: a=1|Cookie: b=2", "GET /p|X-Forwarded-For: 1.1.1.1|X-Forwarded-For: 2.2.2.2", "GET /p|X_A: 1|X.B: 2", "GET /p|Connection: X-Foo|X-Foo: 1",
}

// real is one of the configurations.
type real struct {
	text     string
	files    map[string]string
	requests []string
	host     string

	dir      string
	backends pairBackends
	client   tls.Certificate
	values   []string // of the names in the text
}

var realSection = regexp.MustCompile(`(?m)^%%(file|requests) (.*)\n`)

func newReal(t *testing.T, text string) *real {
	t.Helper()
	c := &real{files: map[string]string{}, dir: t.TempDir()}
	at := realSection.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		switch name, body := text[m[4]:m[5]], text[m[1]:end]; text[m[2]:m[3]] {
		case "file":
			c.files[name] = body
		default:
			c.host, c.requests = name, strings.Split(strings.TrimSpace(body), "\n")
		}
	}
	c.text = "# caddy-upstream: nginx 1.22\n" + text[:at[0][0]]
	same := strings.NewReplacer("HOST", c.host, "UPPER", strings.ToUpper(c.host))
	for _, e := range edges {
		c.requests = append(c.requests, same.Replace(e))
	}
	ca := newAuthority(t)
	_, cert, key := ca.issue(c.host)
	c.client, _, _ = ca.issue("client.example")
	c.values = []string{"@DIR@", c.dir, "@DEAD@", testnet.RefusedAddr(t), "@CERT@", cert, "@KEY@", key, "@CA@", ca.file}
	for i := range 4 {
		b := testnet.NewBackendFunc(t, script(i))
		c.backends.list = append(c.backends.list, b)
		c.values = append(c.values, fmt.Sprintf("@B%d@", i), b.Addr())
	}
	return c
}

// run compares nginx and Caddy.
func (c *real) run(t *testing.T) {
	t.Helper()
	testnet.Need(t, "nginx")
	names := strings.NewReplacer(c.values...)
	first := freshFronts(t)
	c.write(t, first)
	n := testnet.StartNginx(t, first.replacer().Replace(names.Replace(c.text)), nil)
	want := c.ask(t, first)
	if err := n.Stop(30 * time.Second); err != nil { // which completes the logs
		t.Fatal(err)
	}
	maps.Copy(want, c.logs(t, first))
	if err := os.Rename(filepath.Join(c.dir, "logs"), filepath.Join(c.dir, "nginx")); err != nil {
		t.Fatal(err)
	}
	fronts := freshFronts(t)
	c.write(t, fronts)
	startAdapted(t, fronts.replacer().Replace(names.Replace(c.text)), c.dir)
	got := c.ask(t, fronts)
	lines := func(m map[string][]string) (n int) {
		for name := range want {
			if strings.HasSuffix(name, ".log") {
				n += len(m[name])
			}
		}
		return n
	}
	for deadline := time.Now().Add(30 * time.Second); lines(c.logs(t, fronts)) < lines(want) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	maps.Copy(got, c.logs(t, fronts))
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("nginx - caddy +\n%s", diff)
	}
}

// write makes the files that the configuration names.
func (c *real) write(t *testing.T, f fronts) {
	t.Helper()
	names := strings.NewReplacer(c.values...)
	for name, text := range c.files {
		path := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, f.replacer().Replace(names.Replace(text)))
		if err := os.Chtimes(path, time.Time{}, time.Unix(1700000000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// fronts are two addresses.
type fronts [2]string

func freshFronts(t *testing.T) fronts {
	return fronts{testnet.Reserve(t).Addr(), testnet.Reserve(t).Addr()}
}

func (f fronts) replacer() *strings.Replacer {
	return strings.NewReplacer("@F1@", f[0], "@F2@", f[1])
}

// same takes out of a text what is chance.
func (f fronts) same(s string) string {
	_, port, _ := net.SplitHostPort(f[0])
	_, other, _ := net.SplitHostPort(f[1])
	return aMoment.ReplaceAllString(strings.NewReplacer(port, "PORT", other, "OTHER").Replace(s), "#")
}

// ask sends the requests, and returns what can be seen, by what was asked.
func (c *real) ask(t *testing.T, f fronts) map[string][]string {
	t.Helper()
	testnet.Eventually(t, 30*time.Second, "the front", func() bool {
		conn, err := net.Dial("tcp", f[0])
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	for _, b := range c.backends.list {
		b.Forget()
	}
	out := map[string][]string{}
	for i, request := range c.requests {
		key := fmt.Sprintf("%03d %.200s", i, request)
		out[key] = c.one(f, request)
		for i, b := range c.backends.list {
			for _, r := range b.Requests() {
				out[key] = append(out[key], fmt.Sprintf("b%d: %s", i, f.same(received(r))))
			}
			b.Forget()
		}
	}
	return out
}

// one is the outcome of one request.
func (c *real) one(f fronts, request string) []string {
	addr := f[0]
	var config *tls.Config
	for kind, certs := range map[string][]tls.Certificate{"TLS": nil, "CERT": {c.client}} {
		if rest, ok := strings.CutPrefix(request, kind+" "); ok {
			request, addr = rest, f[1]
			config = &tls.Config{InsecureSkipVerify: true, ServerName: c.host, Certificates: certs, NextProtos: []string{"http/1.1"}}
		}
	}
	parts := strings.Split(request, "|")
	method, target, _ := strings.Cut(parts[0], " ")
	header := parts[1:]
	var content []byte
	if n := len(header); n > 0 && strings.HasPrefix(header[n-1], "<") {
		content, header = []byte(header[n-1][1:]), header[:n-1]
	}
	if !slices.ContainsFunc(header, func(h string) bool { return strings.HasPrefix(h, "Host:") }) {
		header = append([]string{"Host: " + c.host}, header...)
	}
	conn, err := testnet.Dial(addr)
	if config != nil && err == nil {
		conn.Close()
		conn, err = testnet.DialTLS(addr, config)
	}
	if err != nil {
		return []string{err.Error()}
	}
	defer conn.Close()
	res, err := conn.Do(method, target, append(header, "Connection: close"), content)
	if err != nil {
		return []string{"closed"}
	}
	out := []string{strconv.Itoa(res.Status)}
	for _, h := range res.Header {
		switch name := http.CanonicalHeaderKey(h.Name); name {
		case "Date", "Server", "Connection", "Transfer-Encoding":
		default:
			out = append(out, name+": "+f.same(h.Value))
		}
	}
	slices.Sort(out[1:])
	return append(out, f.same(page(string(res.Body))))
}

// unread are lines of requests that nginx gives up before it knows the host, or
// even the method, or has not read in full.
var unread = regexp.MustCompile(`(?m)^.*("GET (/\.\./x|/%00|/uuuu)|" 414 |" 400 226 .* \[\] |"status":414).*\n`)

// logs are the lines of all logs, by the name of the log, in order: with several
// workers nginx writes them in any.
func (c *real) logs(t *testing.T, f fronts) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "logs", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(f.same(unread.ReplaceAllString(string(text), "")), "\n")
		slices.Sort(lines)
		out[filepath.Base(file)] = lines
	}
	return out
}

// One configuration is reloaded into another, as systemctl reload does it; one
// that is wrong changes nothing.
func TestAnNginxConfigurationIsReloadedIntoAnother(t *testing.T) {
	t.Parallel()
	first, second := newReal(t, mustRead(t, "testdata/nginx/reverse_proxy.conf")), newReal(t, mustRead(t, "testdata/nginx/tenants.conf"))
	second.dir = first.dir
	second.values[1] = first.dir
	front := freshFronts(t)
	socket := filepath.Join(shortDir(t), "admin.sock")
	text := func(c *real) string {
		return "# caddy-upstream: admin unix/" + socket + "\n" + front.replacer().Replace(strings.NewReplacer(c.values...).Replace(c.text))
	}
	first.write(t, front)
	second.write(t, front)
	startAdapted(t, text(first), first.dir)
	if got := first.one(front, "GET /x"); got[0] != "200" || !slices.Contains(got, "X-Backend: b0") {
		t.Fatalf("the first configuration answers %q", got)
	}
	reload := func(text string) error {
		file := filepath.Join(first.dir, "nginx.conf")
		writeFile(t, file, text)
		_, stderr, err := testnet.Command(t, "reload", "--config", file, "--adapter", "nginx-upstream", "--address", "unix/"+socket)
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	}
	if err := reload(strings.Replace(text(second), "proxy_pass", "proxy_pas", 1)); err == nil || !strings.Contains(err.Error(), "proxy_pas: unknown: is proxy_pass meant?") {
		t.Fatalf("reload of a wrong configuration: %v", err)
	}
	if got := first.one(front, "GET /x"); got[0] != "200" {
		t.Fatalf("after a wrong configuration the first answers %q", got)
	}
	for range 2 {
		if err := reload(text(second)); err != nil {
			t.Fatal(err)
		}
		for request, want := range map[string]string{"GET /|Host: acme.example.com": "X-Backend: b1", "GET /|Host: foo.example.com.": "X-Backend: b0", "GET /|Host: nobody.org": "closed"} {
			if got := second.one(front, request); !slices.Contains(got, want) {
				t.Errorf("after the reload %s gives %q, want %q", request, got, want)
			}
		}
		if err := reload(text(first)); err != nil {
			t.Fatal(err)
		}
		if got := first.one(front, "GET /x|Host: nobody.org"); got[0] != "200" {
			t.Errorf("back at the first configuration it answers %q", got)
		}
	}
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
