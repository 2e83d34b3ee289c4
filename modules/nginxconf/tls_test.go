// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.step.sm/crypto/pemutil"
)

// encryptedPair writes a certificate and its key, encrypted with "secret".
func encryptedPair(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := pemutil.EncryptPKCS8PrivateKey(rand.Reader, pkcs8, []byte("secret"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: block} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEncryptedKeysAreOpenedWhenTheConfigurationIsLoaded(t *testing.T) {
	dir := t.TempDir()
	cert, key, passwords := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "passwords")
	encryptedPair(t, cert, key)
	tls := fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; ssl_password_file %s;", cert, key, passwords)
	for name, text := range map[string]string{
		"http":   "http { server { listen 127.0.0.1:1 ssl; " + tls + " return 200; } }",
		"stream": "stream { server { listen 127.0.0.1:1 ssl; " + tls + " return x; } }",
	} {
		_, adapted := outcome(text)
		if adapted == nil || strings.Contains(string(adapted), "secret") {
			t.Fatalf("%s: adapted to %s", name, adapted)
		}
		for lines, good := range map[string]bool{"other\nsecret\n": true, "other\n": false} {
			if err := os.WriteFile(passwords, []byte(lines), 0o600); err != nil {
				t.Fatal(err)
			}
			var config *caddy.Config
			if err := caddy.StrictUnmarshalJSON(adapted, &config); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(config); (err == nil) != good {
				t.Errorf("%s with the passwords %q: %v", name, lines, err)
			}
		}
	}
}
