// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
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
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// certFiles writes a certificate and its key, and returns their names.
func certFiles(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// It is how ssl_reject_handshake of an nginx.conf is taken over.
func TestAServerThatDropsHandshakesLeavesTheOthersOfItsAddressTheirs(t *testing.T) {
	cert, key := certFiles(t, "one.example")
	c := testnet.StartCaddy(t, config(nil, []string{
		server(0, `127.0.0.1:{{port "front"}}`, "tls {\nconnection_policy {\ndrop\n}\n}", "return never"),
		server(1, `127.0.0.1:{{port "front"}}`, "server_name one.example", fmt.Sprintf("tls %s %s", cert, key), `return "{stream.server_name}"`),
	}), nil)
	for name, want := range map[string]string{"one.example": "one.example", "two.example": "", "": ""} {
		raw, err := net.Dial("tcp", c.Addr("front"))
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(30 * time.Second))
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: name})
		err = conn.Handshake()
		if rejected := err != nil; rejected != (want == "") {
			t.Errorf("%q: the handshake ends with %v", name, err)
		}
		if err == nil {
			if got, _ := io.ReadAll(conn); string(got) != want {
				t.Errorf("%q: the answer is %q, want %q", name, got, want)
			}
		} else if l := session(t, c, 0, portOf(raw)); status(l) != 500 {
			t.Errorf("%q: status %d, want 500", name, status(l))
		}
		raw.Close()
	}
}
