// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
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
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestStreamRedis(t *testing.T) {
	redis := testnet.StartRedis(t)
	p := serveStream(t, group("redis", redis.Addr("redis")), `
		server `+front("front")+` {
			proxy_pass redis
		}`)
	s := p.tcp("front")
	const n = 1000 // commands in one go
	var commands, want strings.Builder
	for i := range n {
		fmt.Fprintf(&commands, "SET key%d value%d\r\nGET key%d\r\n", i, i, i)
		v := fmt.Sprintf("value%d", i)
		fmt.Fprintf(&want, "+OK\r\n$%d\r\n%s\r\n", len(v), v)
	}
	s.say(commands.String())
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(s.r, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Error("the answers to pipelined commands are others")
	}

	sub := p.tcp("front")
	sub.say("SUBSCRIBE news\r\n")
	for range 6 {
		sub.line()
	}
	for i := range 100 {
		s.say(fmt.Sprintf("PUBLISH news item%d\r\n", i))
		if got := s.line(); got != ":1\r" {
			t.Fatalf("publishing: %q", got)
		}
		for range 6 {
			sub.line()
		}
		if got, want := sub.line(), fmt.Sprintf("item%d\r", i); got != want {
			t.Fatalf("the subscriber got %q, want %q", got, want)
		}
	}
	p.waitConns(2)
}

// certificate writes a self-signed certificate for names into dir.
func certificate(t *testing.T, dir string, names ...string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: names, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", encoded), pool
}

// forPostgres gives files to the user that postgres runs as.
func forPostgres(t *testing.T, dir string, files ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Chown(f, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStreamPostgres(t *testing.T) {
	psql := testnet.Need(t, "psql")
	dir := shortDir(t)
	cert, key, _ := certificate(t, dir, "localhost")
	forPostgres(t, dir, cert, key)
	db := testnet.StartPostgres(t, "ssl=on", "ssl_cert_file="+cert, "ssl_key_file="+key)
	p := serveStream(t, group("db", db.Addr("postgres")), `
		server `+front("front")+` {
			proxy_pass db
			access_log
		}`)
	host, port, _ := net.SplitHostPort(p.Addr("front"))
	query := func(mode, script string) string {
		t.Helper()
		cmd := exec.Command(psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", port, "-U", "postgres")
		cmd.Env = append(os.Environ(), "PGSSLMODE="+mode)
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("psql with sslmode=%s: %v\n%s", mode, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, mode := range []string{"disable", "require"} {
		encrypted := map[string]string{"disable": "f", "require": "t"}[mode]
		if got := query(mode, "select ssl from pg_stat_ssl where pid = pg_backend_pid();"); got != encrypted {
			t.Errorf("sslmode=%s: TLS %q, want %q", mode, got, encrypted)
		}
		got := query(mode, "create table t"+encrypted+" (n int, s text);\nbegin; insert into t"+encrypted+" values (1, 'x'); rollback;\n"+
			"begin; insert into t"+encrypted+" values (2, 'y'); commit;\nselect * from t"+encrypted+";")
		if got != "2|y" {
			t.Errorf("sslmode=%s: after a transaction: %q", mode, got)
		}
		// 50 MB to the client and back again
		file := filepath.Join(dir, "copy-"+mode)
		got = query(mode, fmt.Sprintf("\\copy (select n, repeat(md5(n::text), 31) from generate_series(1, 52000) n) to '%s'\n"+
			"\\copy t%s from '%s'\nselect count(*), sum(length(s)) from t%s;", file, encrypted, file, encrypted))
		if got != "52001|51584001" {
			t.Errorf("sslmode=%s: after the copy: %q", mode, got)
		}
		if info, err := os.Stat(file); err != nil || info.Size() < 50e6 {
			t.Errorf("sslmode=%s: the copy is %v, %v", mode, info, err)
		}
	}
	p.waitConns(0)
}

// Real TLS servers behind, chosen by the name in the hello in both ways.
func TestStreamSNIRouting(t *testing.T) {
	dir := shortDir(t)
	cert, key, pool := certificate(t, dir, "*.example.com")
	var blocks strings.Builder
	for _, name := range []string{"a", "b", "c"} {
		fmt.Fprintf(&blocks, "server { listen 127.0.0.1:{{port %q}} ssl; location / { return 200 \"%s $ssl_server_name\"; } }\n", name, name)
	}
	nginx := testnet.StartNginx(t, "http {\naccess_log off;\nssl_certificate "+cert+";\nssl_certificate_key "+key+";\n"+blocks.String()+"}", nil)
	p := serveStream(t, group("a", nginx.Addr("a"))+group("b", nginx.Addr("b"))+group("c", nginx.Addr("c")), `
		server `+front("map")+` {
			ssl_preread
			map {stream.ssl_preread_server_name} backend {
				hostnames
				a.example.com a
				*.example.com b
				default c
			}
			proxy_pass {stream.vars.backend}
		}
		server `+front("names")+` {
			proxy_pass c
		}
		server `+front("names")+` {
			server_name a.example.com
			proxy_pass a
		}
		server `+front("names")+` {
			server_name *.example.com
			set name wildcard
			proxy_pass b
			access_log {
				field name {stream.vars.name}
			}
		}`)
	for _, listener := range []string{"map", "names"} {
		for name, want := range map[string]string{
			"a.example.com": "a a.example.com", "b.example.com": "b b.example.com", "z.example.com": "b z.example.com", "": "c ",
		} {
			config := &tls.Config{ServerName: name, RootCAs: pool}
			if name == "" {
				config.InsecureSkipVerify = true
			}
			c, err := testnet.DialTLS(p.Addr(listener), config)
			if err != nil {
				t.Fatalf("%s %s: %v", listener, name, err)
			}
			res, err := c.Do("GET", "/", []string{"Host: x"}, nil)
			if err != nil {
				t.Fatalf("%s %s: %v", listener, name, err)
			}
			if got := string(res.Body); got != want {
				t.Errorf("%s %q: the answer is %q, want %q", listener, name, got, want)
			}
			c.Close()
		}
	}
	p.WaitLog(t, "session", map[string]any{"name": "wildcard", "status": 200})
	// what is no TLS goes to the default
	s := p.tcp("names")
	s.say("GET / HTTP/1.0\r\n\r\n")
	if got := s.rest(); !bytes.Contains([]byte(got), []byte("400")) {
		t.Errorf("plain HTTP to the default server: %q", got)
	}
}
