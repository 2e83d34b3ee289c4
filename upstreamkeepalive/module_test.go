// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/google/go-cmp/cmp"
)

func parse(lines ...string) (*Transport, error) {
	text := "upstream_keepalive {\n" + strings.Join(lines, "\n") + "\n}"
	t := new(Transport)
	return t, t.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
}

func TestCaddyfileBecomesJSON(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", `{}`},
		{"keepalive 64", `{"keepalive":64}`},
		{"keepalive 64 local", `{"keepalive":64,"keepalive_local":true}`},
		{"keepalive off", `{"keepalive":0}`},
		{"keepalive_requests 3", `{"keepalive_requests":3}`},
		{"keepalive_time 1m", `{"keepalive_time":60000000000}`},
		{"keepalive_timeout 2s", `{"keepalive_timeout":2000000000}`},
		{"connect_timeout 2s\nsend_timeout 3s\nread_timeout 4s", `{"connect_timeout":2000000000,"send_timeout":3000000000,"read_timeout":4000000000}`},
		{"http_version 1.0", `{"http_version":"1.0"}`},
		{"response_header_limit 8KiB", `{"response_header_limit":8192}`},
		{"bind 127.0.0.1", `{"bind":"127.0.0.1"}`},
		{"bind [::1]:1234", `{"bind":"[::1]:1234"}`},
		{"proxy_protocol v2", `{"proxy_protocol":"v2"}`},
		{"tls", `{"tls":{}}`},
		{"tls_server_name a.test", `{"tls":{"server_name":"a.test"}}`},
		{"tls_insecure_skip_verify", `{"tls":{"insecure_skip_verify":true}}`},
		{"tls_client_auth a.test", `{"tls":{"client_certificate_automate":"a.test"}}`},
		{"tls_client_auth c.pem k.pem", `{"tls":{"client_certificate_file":"c.pem","client_certificate_key_file":"k.pem"}}`},
		{"tls_client_auth c.pem k.pem p", `{"tls":{"client_certificate_file":"c.pem","client_certificate_key_file":"k.pem","client_certificate_password_file":"p"}}`},
		{"tls_protocols tls1.3", `{"tls":{"protocol_min":"tls1.3"}}`},
		{"tls_protocols tls1.2 tls1.2", `{"tls":{"protocol_min":"tls1.2","protocol_max":"tls1.2"}}`},
		{"tls_no_session_resumption", `{"tls":{"no_session_resumption":true}}`},
		{"tls_crl a.pem b.pem", `{"tls":{"crl_files":["a.pem","b.pem"]}}`},
		{"tls_curves x25519 secp256r1", `{"tls":{"curves":["x25519","secp256r1"]}}`},
		{"tls_except_ports 80 8080", `{"tls":{"except_ports":["80","8080"]}}`},
		{"tls_timeout 5s", `{"tls":{"handshake_timeout":5000000000}}`},
		{"tls_renegotiation once", `{"tls":{"renegotiation":"once"}}`},
		{"tls_trust_pool inline {\ntrust_der AAAA\n}", `{"tls":{"ca":{"provider":"inline","trusted_ca_certs":["AAAA"]}}}`},
	} {
		tr, err := parse(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		got, err := json.Marshal(tr)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.in, got, err, tt.want)
		}
		dec := json.NewDecoder(bytes.NewReader(got))
		dec.DisallowUnknownFields()
		back := new(Transport)
		if err := dec.Decode(back); err != nil {
			t.Errorf("%s: strict JSON: %v", tt.in, err)
		}
		if again, _ := json.Marshal(back); !bytes.Equal(got, again) {
			t.Errorf("%s: %s became %s", tt.in, got, again)
		}
	}
}

func TestCaddyfileMistakesAreNamed(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"keepalve 3", `unknown option "keepalve" in transport upstream_keepalive: expected bind, connect_timeout`},
		{"keepalive 3\nkeepalive 4", `option "keepalive" given twice in transport upstream_keepalive, at Testfile:3`},
		{"keepalive", `keepalive: got 0 arguments, expected a number of connections, optionally followed by local, or off, at Testfile:2`},
		{"keepalive -1", `keepalive: -1 is too small: expected 0 or more`},
		{"keepalive many", `keepalive: "many" is not a whole number`},
		{"keepalive 3 shared", `keepalive: unexpected "shared": expected a number of connections`},
		{"keepalive off local", `keepalive: unexpected "local" after off`},
		{"keepalive_requests 0", `keepalive_requests: 0 is too small: expected 1 or more`},
		{"keepalive_time 0", `keepalive_time: 0 is too short`},
		{"read_timeout 5", `read_timeout: "5" is not a duration`},
		{"read_timeout -5s", `read_timeout: -5s is negative`},
		{"read_timeout 5s 6s", `read_timeout: got 2 arguments`},
		{"http_version 2", `http_version: unexpected "2": expected 1.0 or 1.1`},
		{"response_header_limit 5", `response_header_limit: 5 is too small`},
		{"response_header_limit 1GiB", `response_header_limit: 1GiB is too large: expected at most 16MiB`},
		{"bind localhost", `bind "localhost": the host is not an IP address: expected an IP address, optionally with a port`},
		{"bind udp/127.0.0.1", `it is not a TCP address`},
		{"bind 127.0.0.1:1-2", `it has more than one port`},
		{"proxy_protocol v3", `proxy_protocol: unexpected "v3": expected v1 or v2`},
		{"tls yes", `tls: unexpected "yes": expected no argument`},
		{"tls_insecure_skip_verify yes", `tls_insecure_skip_verify: unexpected "yes": expected no argument`},
		{"tls_server_name", `tls_server_name: got 0 arguments`},
		{"tls_client_auth", `tls_client_auth: got 0 arguments, expected a name`},
		{"tls_client_auth a b c d", `tls_client_auth: got 4 arguments, expected a name`},
		{"tls_crl", `tls_crl: got no arguments`},
		{"tls_curves", `tls_curves: got no arguments`},
		{"tls_curves x25520", `tls_curves: unknown curve "x25520", expected secp256r1, secp384r1, secp521r1, x25519, x25519mlkem768, at Testfile:2`},
		{"tls_except_ports", `tls_except_ports: got no arguments`},
		{"tls_except_ports 80 http", `tls_except_ports: port "http": expected a number from 1 to 65535, at Testfile:2`},
		{"keepalive off\nkeepalive_requests 5", `keepalive_requests does nothing beside keepalive off: each request has its own connection, at Testfile:3`},
		{"keepalive_time 5s\nkeepalive off", `keepalive_time does nothing beside keepalive off: each request has its own connection, at Testfile:2`},
		{"keepalive 0 local", `keepalive 0 keeps nothing: leave local out, at Testfile:2`},
		{"proxy_protocol v1\nkeepalive 5", `keepalive does nothing beside proxy_protocol: each request has its own connection, at Testfile:3`},
		{"tls_insecure_skip_verify\ntls_crl a.pem", `tls_crl does nothing beside tls_insecure_skip_verify: without verification nothing is checked, at Testfile:3`},
		{"tls_renegotiation maybe", `tls_renegotiation: unexpected "maybe"`},
		{"tls_trust_pool", `tls_trust_pool: the name of the source of certificates is missing: expected `},
		{"tls_trust_pool nosuch", `tls_trust_pool: unknown source of certificates "nosuch": expected `},
	} {
		_, err := parse(tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "Testfile:") {
			t.Errorf("%q: %v\nwant %s", tt.in, err, tt.want)
		}
	}
	err := new(Transport).UnmarshalCaddyfile(caddyfile.NewTestDispenser("upstream_keepalive 5"))
	if err == nil || !strings.Contains(err.Error(), "expected a block") {
		t.Errorf("an argument: %v", err)
	}
}

func TestImpossibleSettingsDoNotProvision(t *testing.T) {
	minus := -1
	for _, tt := range []struct {
		tr   *Transport
		want string
	}{
		{&Transport{Keepalive: &minus}, "keepalive is -1"},
		{&Transport{KeepaliveLocal: true}, "keepalive_local means nothing"},
		{&Transport{KeepaliveRequests: -1}, "keepalive_requests is -1"},
		{&Transport{Keepalive: new(int), KeepaliveLocal: true}, "keepalive 0 keeps nothing"},
		{&Transport{Keepalive: new(int), KeepaliveTimeout: 5}, "keepalive_timeout does nothing beside keepalive off"},
		{&Transport{ProxyProtocol: "v1", KeepaliveTime: 5}, "keepalive_time does nothing beside proxy_protocol"},
		{&Transport{TLS: &TLS{TLSConfig: reverseproxy.TLSConfig{ExceptPorts: []string{"0"}}}}, `tls: except_ports: port "0": expected a number from 1 to 65535`},
		{&Transport{ReadTimeout: -1}, "read_timeout is -1ns"},
		{&Transport{HTTPVersion: "2"}, `http_version is "2"`},
		{&Transport{ResponseHeaderLimit: 5}, "response_header_limit is 5"},
		{&Transport{ProxyProtocol: "v3"}, `proxy_protocol is "v3"`},
		{&Transport{BindAddress: "localhost"}, `bind "localhost"`},
		{&Transport{TLS: &TLS{TLSConfig: reverseproxy.TLSConfig{Curves: []string{"no"}}}}, "unsupported curve: no"},
		{&Transport{TLS: &TLS{CRLFiles: []string{"no/such/file"}}}, "tls: crl_files: open no/such/file"},
		{&Transport{TLS: &TLS{CRLFiles: []string{"a"}, TLSConfig: reverseproxy.TLSConfig{InsecureSkipVerify: true}}}, "crl_files beside insecure_skip_verify"},
		{&Transport{TLS: &TLS{ClientCertificatePasswordFile: "p"}}, "client_certificate_password_file is for client_certificate_file and"},
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		err := tt.tr.Provision(ctx)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Provision() = %v, want %s", err, tt.want)
		}
		if err := tt.tr.Cleanup(); err != nil { // Caddy calls it after a failure too
			t.Errorf("Cleanup() = %v", err)
		}
		cancel()
	}
}

func TestEnableTLSSurvivesJSON(t *testing.T) {
	tr := new(Transport)
	if tr.TLSEnabled() || tr.RequestHeaderOps() != nil {
		t.Error("TLS without being asked for")
	}
	if err := tr.EnableTLS(new(reverseproxy.TLSConfig)); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(tr)
	if err != nil {
		t.Fatal(err)
	}
	back := new(Transport)
	if err := json.Unmarshal(b, back); err != nil {
		t.Fatal(err)
	}
	if !back.TLSEnabled() {
		t.Errorf("%s is not TLS", b)
	}
	if diff := cmp.Diff("{http.reverse_proxy.upstream.hostport}", back.RequestHeaderOps().Set.Get("Host")); diff != "" {
		t.Error(diff)
	}
}
