// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
)

func TestTheClientsCertificateIsPEMWithATabBeforeEachLineButTheFirst(t *testing.T) {
	raw := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 30)
	s := &Session{tls: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: raw}}}}
	v, _ := s.placeholder("stream.ssl_client_cert")
	lines := strings.Split(v.(string), "\n")
	if len(lines) < 5 || lines[0] != "-----BEGIN CERTIFICATE-----" || lines[len(lines)-1] != "\t-----END CERTIFICATE-----" {
		t.Fatalf("$ssl_client_cert = %q", v)
	}
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, "\t") {
			t.Errorf("the line %q does not begin with a tab", line)
		}
	}
	if block, _ := pem.Decode([]byte(strings.ReplaceAll(v.(string), "\t", "") + "\n")); block == nil || !bytes.Equal(block.Bytes, raw) {
		t.Errorf("it is not the certificate: %q", v)
	}
	for name, s := range map[string]*Session{"no TLS": {}, "no certificate": {tls: &tls.ConnectionState{}}} {
		if v, _ := s.placeholder("stream.ssl_client_cert"); v != "" {
			t.Errorf("%s: $ssl_client_cert = %q, want it empty", name, v)
		}
	}
}
