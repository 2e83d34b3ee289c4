// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"cmp"
	"fmt"
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

	"github.com/caddyserver/caddy/v2/caddyconfig"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// pair is one nginx configuration that runs on nginx and, through the adapter,
// on Caddy; both are sent the same requests and must behave the same.
//
// In its text B0, B1 and B2 are the addresses of backends, DEAD is one where
// connections are refused, FRONT the address the server listens on, DIR the
// folder of the configuration. A backend answers with its name and the target
// that it was asked for, unless X-Do of the request says otherwise: "b0=503
// b1=close".
type pair struct {
	name     string
	http     string   // in http, before the server
	server   string   // in the server
	more     string   // in http, after the server
	stream   string   // a stream block
	requests []string // "GET /path|Name: value|<body"
	files    map[string]string
	modified time.Time // of the files, if not now
	version  string    // 1.22 if empty
	log      string    // the log_format, if not the usual one
	escape   string    // of the log_format
	// mask is what differs from run to run, as times
	mask *regexp.Regexp
}

// outcome is what can be seen of one request.
type outcome struct {
	Request  string
	Status   int
	Header   []string
	Body     string
	Backends []string // what the backends received, by backend
	Log      string
}

// result is all that can be seen of a configuration.
type result struct {
	Outcomes []outcome
	Conns    []int // accepted by each backend
}

func (p *pair) text() string {
	version := cmp.Or(p.version, "1.22")
	format := cmp.Or(p.log, `$status $body_bytes_sent "$uri" [$upstream_addr] [$upstream_status]`)
	return "# caddy-upstream: nginx " + version + `
worker_processes 1;
events {}
http {
	server_tokens off;
	log_format pair escape=` + cmp.Or(p.escape, "default") + ` '` + format + `';
	access_log DIR/access.log pair;
` + p.http + `
	server {
		listen FRONT;
		server_name front.example;
` + p.server + `
	}
` + p.more + `
}
` + p.stream
}

// run compares nginx and Caddy.
func (p *pair) run(t *testing.T) {
	t.Helper()
	testnet.Need(t, "nginx")
	dir := t.TempDir()
	for name, text := range p.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if !p.modified.IsZero() {
			if err := os.Chtimes(path, p.modified, p.modified); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := &pairBackends{}
	for i := range 3 {
		b.list = append(b.list, testnet.NewBackendFunc(t, script(i)))
	}
	values := []string{"DEAD", testnet.RefusedAddr(t), "DIR", dir}
	for i, x := range b.list {
		values = append(values, fmt.Sprintf("B%d", i), x.Addr())
	}
	text := strings.NewReplacer(values...).Replace(p.text())

	want := p.onNginx(t, b, text, dir)
	got := p.onCaddy(t, b, text, dir)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("nginx - caddy +\n%s\nconfiguration:\n%s", diff, text)
	}
}

func (p *pair) onNginx(t *testing.T, b *pairBackends, text, dir string) result {
	t.Helper()
	n := testnet.StartNginx(t, strings.ReplaceAll(text, "FRONT", `{{addr "front"}}`), nil)
	return p.ask(t, b, n.Addr("front"), filepath.Join(dir, "access.log"))
}

func (p *pair) onCaddy(t *testing.T, b *pairBackends, text, dir string) result {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, "access.log"), filepath.Join(dir, "nginx.log")); err != nil {
		t.Fatal(err)
	}
	front := testnet.Reserve(t).Addr()
	c := startAdapted(t, strings.ReplaceAll(text, "FRONT", front), dir)
	testnet.Eventually(t, 10*time.Second, "front of Caddy", func() bool {
		conn, err := net.Dial("tcp", front)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	out := p.ask(t, b, front, filepath.Join(dir, "access.log"))
	c.Kill()
	return out
}

// startAdapted starts Caddy with an nginx configuration that stands in dir.
func startAdapted(t *testing.T, text, dir string) *testnet.Caddy {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("nginx-upstream").Adapt([]byte(text), map[string]any{"filename": filepath.Join(dir, "nginx.conf")})
	if err != nil {
		t.Fatalf("adapt: %v\n%s", err, text)
	}
	return testnet.StartCaddy(t, string(config), nil)
}

// pairBackends are the backends of a pair.
type pairBackends struct{ list []*testnet.Backend }

// script makes the behaviour of a backend.
func script(i int) func(testnet.Request) testnet.Answer {
	name := fmt.Sprintf("b%d", i)
	return func(r testnet.Request) testnet.Answer {
		a := testnet.Answer{Body: name + " " + r.Target() + "\n", Header: []string{"X-Backend: " + name}}
		for do := range strings.FieldsSeq(r.Get("X-Do")) {
			who, what, _ := strings.Cut(do, "=")
			if who != name && who != "all" {
				continue
			}
			header, value, isHeader := strings.Cut(what, ":")
			switch n, err := strconv.Atoi(what); {
			case isHeader:
				a.Header = append(a.Header, header+": "+value)
			case err == nil:
				a.Status = n
				a.Body = fmt.Sprintf("%s says %d\n", name, n)
			case what == "close":
				return testnet.CloseUnanswered
			case what == "silent":
				return testnet.Silent
			case what == "echo":
				a.Echo = true
			}
		}
		return a
	}
}

// ask sends the requests and collects what can be seen.
func (p *pair) ask(t *testing.T, b *pairBackends, addr, log string) result {
	t.Helper()
	var out result
	before := make([]int, len(b.list))
	for i, x := range b.list {
		x.Forget()
		_, before[i] = x.Conns()
	}
	_, port, _ := net.SplitHostPort(addr)
	same := func(s string) string {
		if p.mask != nil {
			s = p.mask.ReplaceAllString(s, "#")
		}
		return strings.ReplaceAll(s, port, "PORT")
	}
	for n, req := range p.requests {
		parts := strings.Split(req, "|")
		method, target, _ := strings.Cut(parts[0], " ")
		header := parts[1:]
		var content []byte
		if len(header) > 0 && strings.HasPrefix(header[len(header)-1], "<") {
			content = []byte(header[len(header)-1][1:])
			header = header[:len(header)-1]
		}
		o := outcome{Request: req}
		res, err := exchangeOnce(addr, method, target, header, content)
		if err != nil {
			o.Body = "closed"
		} else {
			o.Status, o.Body, o.Header = res.Status, same(page(string(res.Body))), visible(res.Header, same)
		}
		for i, x := range b.list {
			for _, r := range x.Requests() {
				o.Backends = append(o.Backends, fmt.Sprintf("b%d: %s", i, same(received(r))))
			}
			x.Forget()
		}
		if err == nil {
			o.Log = same(logLine(t, log, n))
		}
		out.Outcomes = append(out.Outcomes, o)
	}
	for i, x := range b.list {
		_, after := x.Conns()
		out.Conns = append(out.Conns, after-before[i])
	}
	return out
}

func exchangeOnce(addr, method, target string, header []string, content []byte) (testnet.Response, error) {
	c, err := testnet.Dial(addr)
	if err != nil {
		return testnet.Response{}, err
	}
	defer c.Close()
	if !slices.ContainsFunc(header, func(h string) bool { return strings.HasPrefix(h, "Host:") }) {
		header = append([]string{"Host: front.example"}, header...)
	}
	return c.Do(method, target, append(header, "Connection: close"), content)
}

var footer = regexp.MustCompile(`<hr><center>[^<]*</center>`)

// page makes the pages of both servers equal.
func page(body string) string { return footer.ReplaceAllString(body, "<hr>") }

// visible are the header lines that must be the same.
func visible(header []testnet.Header, same func(string) string) []string {
	var out []string
	for _, h := range header {
		switch name := http.CanonicalHeaderKey(h.Name); {
		case name == "Location" || name == "Content-Type" || name == "Content-Length" || name == "Set-Cookie" ||
			name == "Refresh" || name == "Etag" || name == "Last-Modified" || name == "Via" || strings.HasPrefix(name, "X-"),
			name == "Www-Authenticate" || name == "Cache-Control" || name == "Retry-After" || name == "Strict-Transport-Security" || name == "Vary",
			name == "Accept-Ranges" || name == "Content-Range" || strings.HasPrefix(name, "Access-Control-"):
			out = append(out, name+": "+same(h.Value))
		}
	}
	slices.Sort(out)
	return out
}

// received is a request as a backend has seen it, without what says only how
// the connection goes on.
func received(r testnet.Request) string {
	var header []string
	for _, h := range r.Header {
		if name := http.CanonicalHeaderKey(h.Name); name != "Connection" && (name != "Content-Length" || h.Value != "0") {
			header = append(header, name+": "+h.Value)
		}
	}
	slices.Sort(header)
	return r.Line + " | " + strings.Join(header, " | ") + " | " + string(r.Body)
}

// logLine waits for the line of the n-th request.
func logLine(t *testing.T, path string, n int) string {
	t.Helper()
	var line string
	testnet.Eventually(t, 10*time.Second, fmt.Sprintf("line %d of %s", n, path), func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		lines := strings.Split(string(text), "\n")
		if len(lines)-1 <= n {
			return false
		}
		line = lines[n]
		return true
	})
	return line
}

func bufferedConn(c net.Conn) *bufio.Reader { return bufio.NewReader(c) }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
