// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"
)

// tlsLines are the options of TLS to servers, each as it may be written, and the
// versions of HTTP for which it must be refused because Caddy's own transport
// has no such setting, or one that does nothing.
var tlsLines = []struct{ line, refused string }{
	{"tls", ""},
	{"tls_server_name app.internal", ""},
	{"tls_insecure_skip_verify", ""},
	{"tls_client_auth app.internal", ""},
	{"tls_client_auth cert.pem key.pem", ""},
	{"tls_client_auth cert.pem key.pem passwords", "2 3"},
	{"tls_curves x25519 secp256r1", ""},
	{"tls_except_ports 80 8080", "3"},
	{"tls_timeout 7s", "3"},
	{"tls_renegotiation once", "3"},
	{"tls_trust_pool system", ""},
	{"tls_crl testdata/crl.pem", "2 3"},
	{"tls_protocols tls1.3", "2 3"},
	{"tls_no_session_resumption", "2 3"},
}

func TestEveryTLSOptionReachesHTTP2And3OrIsRefusedOnItsLine(t *testing.T) {
	for _, name := range upstreamkeepalive.OptionNames() {
		if strings.HasPrefix(name, "tls") && !slices.ContainsFunc(tlsLines, func(l struct{ line, refused string }) bool { return option(l.line) == name }) {
			t.Errorf("%s is not in the table", name)
		}
	}
	for i, a := range tlsLines {
		testTLSLines(t, a.line)
		for j, b := range tlsLines {
			if i != j && option(a.line) != option(b.line) {
				testTLSLines(t, a.line, b.line)
			}
		}
	}
	var all []string
	for _, l := range tlsLines {
		if len(all) == 0 || option(all[len(all)-1]) != option(l.line) {
			all = append(all, l.line)
		}
	}
	testTLSLines(t, all...)
}

// otherLines are all other options of the transport to servers, the versions for
// which they must be refused, and what they are in Caddy's own transport.
var otherLines = []struct{ line, refused, becomes string }{
	{"keepalive 5", "2 3 h2c", ""},
	{"keepalive off", "2 3 h2c", ""},
	{"keepalive_requests 7", "2 3 h2c", ""},
	{"keepalive_time 7s", "2 3 h2c", ""},
	{"keepalive_timeout 7s", "3", `"keep_alive":{"idle_timeout":7000000000}`},
	{"connect_timeout 7s", "", `"dial_timeout":7000000000`},
	{"send_timeout 7s", "3", `"write_timeout":7000000000`},
	{"read_timeout 7s", "", `"read_timeout":7000000000,"response_header_timeout":7000000000`},
	{"response_header_limit 8KiB", "3", `"max_response_header_size":8192`},
	{"bind 127.0.0.2", "3", `"local_address":"127.0.0.2"`},
	{"proxy_protocol v1", "3", `"proxy_protocol":"v1"`},
}

func TestEveryOtherOptionReachesHTTP2And3OrIsRefusedOnItsLine(t *testing.T) {
	for _, name := range upstreamkeepalive.OptionNames() {
		known := strings.HasPrefix(name, "tls") || name == "http_version"
		for _, l := range otherLines {
			known = known || option(l.line) == name
		}
		if !known {
			t.Errorf("%s is not in the table", name)
		}
	}
	for _, l := range otherLines {
		for _, version := range []string{"2", "3", "h2c"} {
			scheme, block := "https", l.line+"\n\t\thttp_version "+version
			if version == "h2c" {
				scheme, block = version, l.line
			}
			adapted, _, err := adapt(t, ":8080 {\n\tproxy_pass "+scheme+"://127.0.0.1:9001 {\n\t\t"+block+"\n\t}\n}\n")
			want := "proxy_pass: " + option(l.line) + " is for HTTP/1 "
			switch refused := slices.Contains(strings.Fields(l.refused), version); {
			case refused && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), fmt.Sprintf(", at Caddyfile:%d", firstLine))):
				t.Errorf("%q, version %s: %v, want %s... with its line", l.line, version, err, want)
			case !refused && (err != nil || !strings.Contains(string(adapted), l.becomes) || !strings.Contains(string(adapted), `"protocol":"http"`)):
				t.Errorf("%q, version %s: %v, %s; want %s in it", l.line, version, err, adapted, l.becomes)
			}
		}
	}
}

// option is the first word of a line.
func option(line string) string {
	name, _, _ := strings.Cut(line, " ")
	return name
}

// testTLSLines checks what becomes of lines over HTTP/2 and 3: one of those that
// cannot be kept is named, with where it stands, or the settings are the same as
// over HTTP/1, where each can be.
func testTLSLines(t *testing.T, lines ...string) {
	t.Helper()
	_, want, err := tlsOf(t, lines...)
	unchecked := slices.Contains(lines, "tls_crl testdata/crl.pem") && slices.Contains(lines, "tls_insecure_skip_verify")
	if unchecked != (err != nil) { // those two do not go together over HTTP/1 either
		t.Fatalf("%q: %v", lines, err)
	}
	for _, version := range []string{"2", "3"} {
		var refused []string
		for i, line := range lines {
			for _, l := range tlsLines {
				if l.line == line && strings.Contains(l.refused, version) {
					refused = append(refused, fmt.Sprintf("%s at Caddyfile:%d", option(line), firstLine+i))
				}
			}
		}
		protocol, got, err := tlsOf(t, append(slices.Clone(lines), "http_version "+version)...)
		switch {
		case len(refused) == 0 && err != nil:
			t.Errorf("%q, version %s: %v, want it accepted", lines, version, err)
		case len(refused) == 0 && (protocol != "http" || !cmp.Equal(got, want)):
			t.Errorf("%q, version %s: transport %s with other settings than over HTTP/1 (-want +got):\n%s", lines, version, protocol, cmp.Diff(want, got))
		case len(refused) > 0 && err == nil:
			t.Errorf("%q, version %s: accepted, want one of these refused: %q", lines, version, refused)
		case len(refused) > 0:
			_, text, _ := strings.Cut(err.Error(), "proxy_pass: ")
			_, at, _ := strings.Cut(text, ", at ")
			if said := option(text) + " at " + at; !slices.Contains(refused, said) || strings.Contains(text, "\n") {
				t.Errorf("%q, version %s: %v, want one of %q", lines, version, err, refused)
			}
		}
	}
}

const firstLine = 3 // of the options in what tlsOf adapts

// tlsOf adapts a proxy_pass with lines, and returns the kind of the innermost
// transport and its settings of TLS.
func tlsOf(t *testing.T, lines ...string) (protocol string, settings map[string]any, err error) {
	t.Helper()
	text := ":8080 {\n\tproxy_pass https://127.0.0.1:9001 {\n\t\t" + strings.Join(lines, "\n\t\t") + "\n\t}\n}\n"
	adapted, _, err := adapt(t, text)
	if err != nil {
		return "", nil, err
	}
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]struct {
					Routes []struct {
						Handle []struct {
							Transport struct {
								Transport struct {
									Protocol string
									TLS      map[string]any
								}
							}
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	inner := config.Apps.HTTP.Servers["srv0"].Routes[0].Handle[0].Transport.Transport
	return inner.Protocol, inner.TLS, nil
}

func TestCaddysTransportTakesNoneOfOurOwnTLSSettingsInJSON(t *testing.T) {
	settings := reflect.TypeFor[upstreamkeepalive.TLS]()
	for f := range settings.Fields() {
		if f.Anonymous { // Caddy's own
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, err := json.Marshal(reflect.Zero(f.Type).Interface())
		if err != nil {
			t.Fatal(err)
		}
		config := nextJSON(fmt.Sprintf(`"transport":{"protocol":"http","versions":["2"],"tls":{"server_name":"x",%q:%s}}`, name, value))
		if err := load([]byte(config)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown field %q", name)) {
			t.Errorf("%s: loading gives %v, want the field to be unknown", name, err)
		}
	}
}
