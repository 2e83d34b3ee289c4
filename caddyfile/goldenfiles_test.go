// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.step.sm/crypto/pemutil"
)

// certificates makes the files that golden files with client certificates name:
// cert.pem, key.pem, encrypted.pem and passwords.
func certificates(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := pemutil.EncryptPKCS8PrivateKey(rand.Reader, plain, []byte("golden"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"cert.pem":      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"key.pem":       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: plain}),
		"encrypted.pem": pem.EncodeToMemory(encrypted),
		"passwords":     []byte("golden\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// noCA is where sources of certificates are and noTransport where transports are,
// and they are none.
type (
	noCA        struct{}
	noTransport struct{}
)

func init() {
	caddy.RegisterModule(noCA{})
	caddy.RegisterModule(noTransport{})
}

func (noCA) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "tls.ca_pool.source.golden_no_ca", New: func() caddy.Module { return new(noCA) }}
}

func (noTransport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.golden_none", New: func() caddy.Module { return new(noTransport) }}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (*noCA) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (*noTransport) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }
