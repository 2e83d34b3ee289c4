// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package keyfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.step.sm/crypto/pemutil"
)

func TestAnEncryptedKeyIsOpenedWithThePasswordOfTheFileThatFits(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	//lint:ignore SA1019 such keys are there
	old, err := x509.EncryptPEMBlock(rand.Reader, "EC PRIVATE KEY", sec1, []byte("secret"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	modern, err := pemutil.EncryptPKCS8PrivateKey(rand.Reader, pkcs8, []byte("secret"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	cert := file("cert", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	fits, wrong := file("fits", []byte("other\nsecret\r\nmore")), file("wrong", []byte("other\nsecrets\n"))
	for name, c := range map[string]struct {
		key   *pem.Block
		plain bool
	}{
		"proc-type": {old, false}, "pkcs8": {modern, false}, "not encrypted": {&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}, true},
	} {
		key := file("key", pem.EncodeToMemory(c.key))
		if pair, err := Load(cert, key, fits); err != nil || !private.Equal(pair.PrivateKey) {
			t.Errorf("%s: %v, want the key", name, err)
		}
		for _, passwords := range []string{wrong, ""} {
			switch _, err := Load(cert, key, passwords); {
			case (err == nil) != c.plain:
				t.Errorf("%s with passwords %q: %v", name, passwords, err)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("%s: a password in the error: %v", name, err)
			}
		}
	}
	if _, err := Load(cert, file("key", pem.EncodeToMemory(modern)), filepath.Join(dir, "none")); err == nil {
		t.Error("without the file of passwords there is no error")
	}
}
