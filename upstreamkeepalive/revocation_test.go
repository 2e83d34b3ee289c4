// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// revoke writes a list with the serial numbers into file.
func (a authority) revoke(t *testing.T, file string, serials ...*big.Int) {
	t.Helper()
	cert, err := x509.ParseCertificate(a.server.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range serials {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: n, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, cert, a.server.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestARevokedServerIsRefusedAndConnectionsFromBeforeAreNotUsed(t *testing.T) {
	ca := newAuthority(t, "a.test")
	cert, err := x509.ParseCertificate(ca.server.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	s := tlsServer(t, ca, nil, answering(okEmpty))
	file, store, n := filepath.Join(t.TempDir(), "crl.pem"), newStore(t), 8
	bound := func() *Transport { // as at each reload, when the settings are the same
		tr := trusting(ca, "a.test")
		tr.TLS.CRLFiles = []string{file}
		provisioned(t, tr)
		if err := tr.Bind(store, exchange.Keepalive{Connections: &n}); err != nil {
			t.Fatal(err)
		}
		return tr
	}
	ca.revoke(t, file)
	before, again := bound(), bound()
	for i, tr := range []*Transport{before, again} {
		a := new(exchange.Attempt)
		res, err := tr.Exchange(request(t, "GET", s.Addr(), nil), a)
		if err != nil || a.Reused != (i > 0) {
			t.Fatalf("Exchange() %d with nothing revoked = %v, reused %t", i, err, a.Reused)
		}
		res.Body.Close()
	}
	ca.revoke(t, file, cert.SerialNumber)
	res, err := bound().Exchange(request(t, "GET", s.Addr(), nil), new(exchange.Attempt))
	var e *exchange.Error
	if !errors.As(err, &e) || e.Kind != exchange.Failed || e.Op != "tls handshake" {
		t.Errorf("Exchange() with a server that is revoked = %v, %v", res, err)
	}
}
