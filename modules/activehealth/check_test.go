// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve lets f answer every connection to an address of its own.
func serve(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			f(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	return ln.Addr().String()
}

// answers reads a request and writes text.
func answers(text string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, text)
		}
	}
}

// hangs reads until the other side is gone.
func hangs(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// parse reads a health_check line, whose first word stands for "health_check".
func parse(t *testing.T, mod caddy.Module, line string) error {
	t.Helper()
	return mod.(caddyfile.Unmarshaler).UnmarshalCaddyfile(caddyfile.NewTestDispenser(line))
}

// patience is for what must come, brief for what must not.
const patience, brief = 30 * time.Second, 2 * time.Second

// ask makes a check of a line and asks address once.
func ask(t *testing.T, mod caddy.Module, line, address string) error {
	t.Helper()
	return askWithin(t, patience, mod, line, address)
}

func askWithin(t *testing.T, d time.Duration, mod caddy.Module, line, address string) error {
	t.Helper()
	if err := parse(t, mod, line); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	if err := mod.(caddy.Provisioner).Provision(ctx); err != nil {
		t.Fatal(err)
	}
	limit, end := context.WithTimeout(t.Context(), d)
	defer end()
	return mod.(checker).check(limit, target{Network: "tcp", Address: address, Host: "check.test", AddressHost: "127.0.0.1"})
}

// verdict compares the result of a check with part of a reason; "" is a pass.
func verdict(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil && want == "" || err != nil && want != "" && strings.Contains(err.Error(), want) {
		return
	}
	t.Errorf("%s: %v, want %q", what, err, want)
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Version: 7\r\n\r\nhello"

func TestAnHTTPCheckSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, line, answer, want string }{
		{"well", "http", ok, ""},
		{"no length", "http", "HTTP/1.0 204 No Content\r\n\r\n", ""},
		{"chunked", "http {\nexpect_body ^hello$\n}", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", ""},
		{"interim", "http", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok, ""},
		{"only interim", "http", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 9), "nothing but interim"},
		{"status", "http", "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "status 503"},
		{"redirect", "http", "HTTP/1.1 301 Moved\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\n\r\n", `status 301, a redirect to "https://elsewhere/"`},
		{"redirect expected", "http expect_status=2xx,301-302", "HTTP/1.1 301 Moved\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n", ""},
		{"exact status", "http expect_status=204", ok, "status 200"},
		{"body", "http {\nexpect_body ^bye$\n}", ok, "the body does not match ^bye$"},
		{"rejected body", "http {\nreject_body hell\n}", ok, "the body matches hell"},
		{"header", "http {\nexpect_header X-Version ^7$\n}", ok, ""},
		{"header is there", "http {\nexpect_header X-Version\n}", ok, ""},
		{"wrong header", "http {\nexpect_header X-Version ^8$\n}", ok, `header X-Version is "7"`},
		{"no header", "http {\nexpect_header X-Other\n}", ok, "header X-Other is missing"},
		{"header refused", "http {\nexpect_header !X-Version\n}", ok, `header X-Version is "7"`},
		{"header value refused", "http {\nexpect_header !X-Version ^8\n}", ok, ""},
		{"short body", "http", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "reading the body: the server closed the connection"},
		{"half a header", "http", "HTTP/1.1 200 OK\r\nX: 1\r\n", "reading the answer: the server closed the connection"},
		{"nothing", "http", "", "reading the answer: the server closed the connection"},
		{"not HTTP", "http", "+PONG\r\n\r\n", "malformed HTTP"},
		{"endless header", "http", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxAnswer) + "\r\n\r\n", "longer than"},
		{"long body", "http", "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200_000), ""},
		{"HEAD", "http method=HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", ""},
	} {
		verdict(t, tt.name, ask(t, new(HTTP), tt.line, serve(t, answers(tt.answer))), tt.want)
	}
}

func TestAServerThatHangsRefusesOrIsNotThereIsOut(t *testing.T) {
	hung := serve(t, hangs)
	closed := serve(t, func(net.Conn) {})
	gone := func() string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		return ln.Addr().String()
	}()
	slow := serve(t, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
		hangs(c)
	})
	for _, tt := range []struct {
		mod                 caddy.Module
		line, address, want string
	}{
		{new(HTTP), "http", hung, "reading the answer: timed out"},
		{new(HTTP), "http", slow, "reading the body: timed out"},
		{new(HTTP), "http", gone, "connecting: connect: connection refused"},
		{new(HTTP), "http tls", hung, "tls handshake: timed out"},
		{new(HTTP), "http tls", closed, "tls handshake: "},
		{new(TCP), "tcp", hung, ""},
		{new(TCP), "tcp", gone, "connecting: connect: connection refused"},
		{new(TCP), "tcp expect=x", hung, "the answer does not match x: timed out"},
		{new(TLS), "tls", hung, "tls handshake: timed out"},
		{new(GRPC), "grpc", hung, "timed out"},
		{new(GRPC), "grpc", gone, "connection refused"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			t.Parallel()
			limit := patience
			if strings.HasSuffix(tt.want, "timed out") {
				limit = brief
			}
			verdict(t, tt.line+" of "+tt.address, askWithin(t, limit, tt.mod, tt.line, tt.address), tt.want)
		})
	}
}

func TestACheckThatIsStoppedEndsAtOnce(t *testing.T) {
	address := serve(t, hangs)
	for _, mod := range []caddy.Module{new(HTTP), &TCP{Expect: "x"}, new(TLS), new(GRPC)} {
		c, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		if err := mod.(caddy.Provisioner).Provision(c); err != nil {
			t.Fatal(err)
		}
		cancel()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		ended := make(chan error, 1)
		go func() { ended <- mod.(checker).check(ctx, target{Network: "tcp", Address: address}) }()
		time.AfterFunc(50*time.Millisecond, stop)
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%T: no error, want one", mod)
			}
		case <-time.After(patience):
			t.Fatalf("%T goes on after its context has ended", mod)
		}
	}
}

func TestTheRequestIsWhatTheConfigurationSays(t *testing.T) {
	got := make(chan string, 1)
	address := serve(t, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%s %s host=%s agent=%q close=%t x=%v body=%q", r.Method, r.RequestURI, r.Host,
			r.UserAgent(), r.Close, r.Header["X"], body)
		_, _ = io.WriteString(c, ok)
	})
	for _, tt := range []struct{ line, want string }{
		{"http", `GET / host=` + address + ` agent="caddy-upstream (health check)" close=true x=[] body=""`},
		{"http method=POST uri=/up?a=b host=a.test body=ping {\nheader X 1\nheader X 2\nheader User-Agent me\n}",
			`POST /up?a=b host=a.test agent="me" close=true x=[1 2] body="ping"`},
	} {
		if err := ask(t, new(HTTP), tt.line, address); err != nil {
			t.Error(err)
		}
		if text := <-got; text != tt.want {
			t.Errorf("%s: %s, want %s", tt.line, text, tt.want)
		}
	}
}

func TestATCPCheckSendsAndExpects(t *testing.T) {
	redis := serve(t, func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		if line == "PING\r\n" {
			_, _ = io.WriteString(c, "+PO")
			_, _ = io.WriteString(c, "NG\r\n")
		}
	})
	for _, tt := range []struct{ line, want string }{
		{`tcp "send=PING\r\n" expect=^\+PONG`, ""},
		{`tcp send=PING\x0d\x0a expect=^\+PONG`, ""},
		{`tcp send=PANG\n expect=^\+PONG`, `the answer does not match ^\+PONG: the server closed the connection`},
	} {
		verdict(t, tt.line, ask(t, new(TCP), tt.line, redis), tt.want)
	}
}

// certificate makes one for check.test that is valid for the time given, and
// the file that trusts it.
func certificate(t *testing.T, from, to time.Time) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to,
		DNSNames: []string{"check.test"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestCertificatesAreVerified(t *testing.T) {
	now := time.Now()
	good, trust := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	old, trustOld := certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	secure := func(cert tls.Certificate) string {
		return serve(t, func(c net.Conn) {
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
			if s.Handshake() == nil {
				answers(ok)(s)
			}
		})
	}
	fresh, expired := secure(good), secure(old)
	for _, kind := range []string{"http", "tls"} {
		for _, tt := range []struct{ params, address, want string }{
			{" tls_trusted_ca_certs=" + trust, fresh, ""},
			{" tls_trusted_ca_certs=" + trustOld, expired, "certificate has expired"},
			{" tls_trusted_ca_certs=" + trust + " tls_server_name=other.test", fresh, "not other.test"},
			{" tls_server_name=check.test", fresh, "unknown authority"},
			{" tls_insecure_skip_verify", expired, ""},
			{" tls_insecure_skip_verify", serve(t, answers(ok)), "tls handshake: "},
		} {
			var mod caddy.Module = new(HTTP)
			if kind == "tls" {
				mod = new(TLS)
			}
			verdict(t, kind+tt.params, ask(t, mod, kind+tt.params, tt.address), tt.want)
		}
	}
}

func TestAGRPCCheckAsksTheHealthService(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, state := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	state.SetServingStatus("shop", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	address := ln.Addr().String()
	for _, tt := range []struct{ line, want string }{
		{"grpc", ""},
		{"grpc service=shop", "the service is NOT_SERVING"},
		{"grpc service=unknown", `does not know the service "unknown"`},
		{"grpc tls", "tls"},
	} {
		verdict(t, tt.line, ask(t, new(GRPC), tt.line, address), tt.want)
	}
	plain := grpc.NewServer()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = plain.Serve(other) }()
	t.Cleanup(func() { plain.Stop(); <-done })
	verdict(t, "no health service", ask(t, new(GRPC), "grpc", other.Addr().String()), "the server has no health service")
}

func TestMistakesInAHealthCheckAreNamed(t *testing.T) {
	for _, tt := range []struct {
		mod        caddy.Module
		line, want string
	}{
		{new(HTTP), "http interval=0", "interval: "},
		{new(HTTP), "http interval=1ms", "interval: 1ms is too short: expected 10ms or more"},
		{new(HTTP), "http jitter=-1s", "jitter: -1s is negative"},
		{new(HTTP), "http timeout=x", `timeout: "x" is not a duration`},
		{new(HTTP), "http fails=0", "fails: 0 is too small"},
		{new(HTTP), "http passes=x", "passes: \"x\" is not a whole number"},
		{new(HTTP), "http persistent", "persistent does nothing without mandatory"},
		{new(HTTP), "http mandatory=yes", `parameter "mandatory" takes no value`},
		{new(HTTP), "http on_fail=burn", `on_fail: unexpected "burn": expected keep or close`},
		{new(HTTP), "http port=70000", "port 70000: expected 1 to 65535"},
		{new(HTTP), "http port=80 address=a:80", "port and address: expected one of them"},
		{new(HTTP), "http address=a", `address "a": expected host:port`},
		{new(HTTP), "http method=G(T", `method "G(T": expected a method`},
		{new(HTTP), "http method=CONNECT", `method "CONNECT"`},
		{new(HTTP), "http uri=up", `uri "up": expected a path that begins with /`},
		{new(HTTP), "http host=a/b%", `host "a/b%": not valid`},
		{new(HTTP), "http expect_status=20", `expect_status: "20": expected a status such as 204`},
		{new(HTTP), "http expect_status=300-200", `expect_status: "300-200"`},
		{new(HTTP), "http expect_status=6xx", `expect_status: "6xx"`},
		{new(HTTP), "http color=blue", `unknown parameter "color=blue"`},
		{new(HTTP), "http {\nexpect_body (\n}", "expect_body: "},
		{new(HTTP), "http {\nreject_body (\n}", "reject_body: "},
		{new(HTTP), "http {\nexpect_header X (\n}", "expect_headers: X: "},
		{new(HTTP), "http {\nexpect_header X:Y\n}", `"X:Y" is not the name of a header`},
		{new(HTTP), "http {\nheader Host a\n}", `headers: "Host": "a" cannot be sent`},
		{new(HTTP), "http {\nheader X\n}", "header: got 1 arguments"},
		{new(HTTP), "http {\ncolor blue\n}", `unknown option "color" in health_check`},
		{new(TCP), `tcp send=\q`, `send "\\q": expected escapes`},
		{new(TCP), "tcp expect=(", "expect: "},
		{new(TCP), "tcp uri=/", `unknown parameter "uri=/"`},
		{new(TCP), "tcp {\nx\n}", "unexpected block"},
		{new(TLS), "tls fails=-1", "fails: -1 is too small"},
		{new(GRPC), "grpc passes=-1", "passes: -1 is too small"},
	} {
		verdict(t, tt.line, parse(t, tt.mod, tt.line), tt.want)
	}
}
