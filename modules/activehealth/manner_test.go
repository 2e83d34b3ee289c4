// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// provisioned makes a check of a line.
func provisioned(t *testing.T, mod caddy.Module, line string) upstream.TLSFollower {
	t.Helper()
	if err := parse(t, mod, line); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	if err := mod.(caddy.Provisioner).Provision(ctx); err != nil {
		t.Fatal(err)
	}
	return mod.(upstream.TLSFollower)
}

func contextFor(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}

// named is a handler's TLS that expects this name.
func named(name string) *clienttls.Client {
	return &clienttls.Client{Config: &tls.Config{ServerName: name}}
}

func TestACheckDoesWhatTheHandlersDoUnlessItSaysOtherwise(t *testing.T) {
	t.Setenv("CHECK_NAME", "env.test")
	for _, tt := range []struct {
		mod      caddy.Module
		line     string
		handlers []*clienttls.Client
		want     string // the name that certificates are for, or a part of the error
	}{
		{new(HTTP), "http", nil, "without"},
		{new(HTTP), "http", []*clienttls.Client{nil, nil}, "without"},
		{new(HTTP), "http", []*clienttls.Client{named("a.test"), named("a.test")}, "a.test"},
		{new(HTTP), "http", []*clienttls.Client{named("a.test"), named("b.test")}, "they expect different names in certificates: a.test and b.test: say in the check"},
		{new(HTTP), "http", []*clienttls.Client{named("a.test"), named("")}, "a.test and the server's own"},
		{new(HTTP), "http", []*clienttls.Client{named("a.test"), nil}, "they do not all use TLS: say in the check what it is to do, with tls_off, or"},
		{new(HTTP), "http", []*clienttls.Client{nil, named("a.test")}, "they do not all use TLS"},
		{new(HTTP), "http", []*clienttls.Client{named("{env.CHECK_NAME}")}, "env.test"},
		{new(HTTP), "http", []*clienttls.Client{named("{http.request.host}")}, "placeholders in the name of its servers, {http.request.host}"},
		{new(HTTP), "http tls", []*clienttls.Client{named("a.test"), nil}, ""},
		{new(HTTP), "http tls_server_name=own.test", []*clienttls.Client{named("a.test"), named("b.test")}, "own.test"},
		{new(HTTP), "http tls_off", []*clienttls.Client{named("a.test"), named("b.test")}, "without"},
		{new(GRPC), "grpc", []*clienttls.Client{named("a.test")}, "a.test"},
		{new(GRPC), "grpc", []*clienttls.Client{nil, named("a.test")}, "they do not all use TLS"},
		{new(GRPC), "grpc tls_off", []*clienttls.Client{named("a.test")}, "without"},
		{new(GRPC), "grpc tls", []*clienttls.Client{named("a.test")}, ""},
		{new(TLS), "tls", nil, ""},
		{new(TLS), "tls", []*clienttls.Client{nil, named("a.test"), nil}, "a.test"},
		{new(TLS), "tls", []*clienttls.Client{named("a.test"), named("b.test")}, "a.test and b.test"},
		{new(TLS), "tls tls_server_name=own.test", []*clienttls.Client{named("a.test"), named("b.test")}, "own.test"},
	} {
		check := provisioned(t, tt.mod, tt.line)
		got := ""
		for _, h := range tt.handlers {
			if err := check.FollowTLS(h); err != nil {
				got = err.Error()
			}
		}
		if got != "" {
			if tt.want == "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %q, want %q", tt.line, got, tt.want)
			}
			continue
		}
		if got = "without"; check.ServerTLS() != nil {
			got = check.ServerTLS().Config.ServerName
		}
		if got != tt.want {
			t.Errorf("%s: a certificate for %q, want %q", tt.line, got, tt.want)
		}
	}
	both := &HTTP{TLSOff: true, TLS: provisioned(t, new(HTTP), "http tls").(*HTTP).TLS}
	if err := both.Provision(caddy.Context{Context: t.Context()}); err == nil || !strings.Contains(err.Error(), "tls_off beside other settings") {
		t.Errorf("tls_off and tls: %v, want an error", err)
	}
}

func TestAFollowedCheckAsksAsTheHandlerWould(t *testing.T) {
	cert, trust := certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	pem, err := os.ReadFile(trust)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	var sni atomic.Value
	address := serve(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			sni.Store(h.ServerName)
			return &cert, nil
		}})
		if s.Handshake() == nil {
			answers(ok)(s)
		}
	})
	plain := serve(t, answers(ok))
	_, plainPort, err := net.SplitHostPort(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what          string
		client        *clienttls.Client
		address, want string
		sni           string
	}{
		{"trust", &clienttls.Client{Config: &tls.Config{RootCAs: pool}}, address, "", "check.test"},
		{"no trust", &clienttls.Client{Config: &tls.Config{RootCAs: x509.NewCertPool()}}, address, "unknown authority", "check.test"},
		{"the name of the address", &clienttls.Client{Config: &tls.Config{RootCAs: pool}, ByAddress: true}, address, "cannot validate certificate for 127.0.0.1", ""},
		{"a name of its own", &clienttls.Client{Config: &tls.Config{RootCAs: pool, ServerName: "check.test"}, ByAddress: true}, address, "", "check.test"},
		{"no name in the hello", &clienttls.Client{Config: &tls.Config{RootCAs: pool}, NoSNI: true}, address, "", ""},
		{"no name in the hello, wrong name", &clienttls.Client{Config: &tls.Config{RootCAs: pool, ServerName: "other.test"}, NoSNI: true}, address, "not other.test", ""},
		{"an excepted port", &clienttls.Client{Config: new(tls.Config), ExceptPorts: []string{plainPort}}, plain, "", ""},
	} {
		sni.Store("")
		mod := new(HTTP)
		check := provisioned(t, mod, "http")
		if err := check.FollowTLS(tt.client); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := contextFor(t)
		err := mod.check(ctx, target{Network: "tcp", Address: tt.address, Host: "check.test", AddressHost: "127.0.0.1"})
		cancel()
		verdict(t, tt.what, err, tt.want)
		if got := sni.Load(); got != tt.sni {
			t.Errorf("%s: the hello asks for %q, want %q", tt.what, got, tt.sni)
		}
	}
	slow := &HTTP{manner: manner{client: &clienttls.Client{Config: new(tls.Config), HandshakeTimeout: time.Millisecond}}}
	ctx, cancel := contextFor(t)
	defer cancel()
	verdict(t, "a limit for the handshake", slow.check(ctx, target{Network: "tcp", Address: serve(t, hangs), Host: "check.test"}), "tls handshake: timed out")
}
