// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"crypto/tls"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
)

// tlsSettings are settings of ours and of Caddy's, and whether a configuration of
// TLS has them.
var tlsSettings = []struct {
	name string
	set  func(*clienttls.Settings)
	has  func(*tls.Config) bool
}{
	{"protocol_min", func(s *clienttls.Settings) { s.ProtocolMin = "tls1.3" }, func(c *tls.Config) bool { return c.MinVersion == tls.VersionTLS13 }},
	{"protocol_max", func(s *clienttls.Settings) { s.ProtocolMax = "tls1.3" }, func(c *tls.Config) bool { return c.MaxVersion == tls.VersionTLS13 }},
	{"no_session_resumption", func(s *clienttls.Settings) { s.NoSessionResumption = true }, func(c *tls.Config) bool { return c.SessionTicketsDisabled }},
	{"crl_files", func(s *clienttls.Settings) { s.CRLFiles = []string{"../../../caddyfile/testdata/crl.pem"} }, func(c *tls.Config) bool { return c.VerifyConnection != nil }},
	{"curves", func(s *clienttls.Settings) { s.Curves = []string{"x25519"} }, func(c *tls.Config) bool { return len(c.CurvePreferences) == 1 }},
	{"renegotiation", func(s *clienttls.Settings) { s.Renegotiation = "once" }, func(c *tls.Config) bool { return c.Renegotiation == tls.RenegotiateOnceAsClient }},
	{"server_name", func(s *clienttls.Settings) { s.ServerName = "app.internal" }, func(c *tls.Config) bool { return c.ServerName == "app.internal" }},
}

func TestEveryTLSSettingReachesServersOfGRPC(t *testing.T) {
	for mask := range 1 << len(tlsSettings) {
		settings, names := new(clienttls.Settings), []string{}
		for i, s := range tlsSettings {
			if mask&(1<<i) != 0 {
				s.set(settings)
				names = append(names, s.name)
			}
		}
		transport := &GRPC{TLS: settings}
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		if err := transport.Provision(ctx); err != nil {
			t.Fatalf("%q: %v", names, err)
		}
		config := transport.Transport.TLSClientConfig
		for i, s := range tlsSettings {
			if want := mask&(1<<i) != 0; s.has(config) != want {
				t.Errorf("%q: %s is there: %t, want %t", names, s.name, !want, want)
			}
		}
		if !slices.Contains(config.NextProtos, "h2") {
			t.Errorf("%q: HTTP/2 is not offered: %q", names, config.NextProtos)
		}
		cancel()
	}
}
