// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package clienttls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.step.sm/crypto/pemutil"
)

// authority has a certificate for a.test that it signed itself.
type authority struct {
	t   *testing.T
	dir string
	der []byte
	key *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, DNSNames: []string{"a.test"}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, t.TempDir(), der, key}
}

func (a *authority) file(name, kind string, der []byte) string {
	a.t.Helper()
	name = filepath.Join(a.dir, name)
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return name
}

// list makes a file that revokes serial numbers.
func (a *authority) list(revoked ...int64) string {
	a.t.Helper()
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range revoked {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: time.Now()})
	}
	cert, err := x509.ParseCertificate(a.der)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.file(fmt.Sprint("crl", revoked), "X509 CRL", der)
}

func (a *authority) settings() *Settings {
	file := a.file("ca.pem", "CERTIFICATE", a.der)
	return &Settings{TLSConfig: reverseproxy.TLSConfig{
		CARaw: caddyconfig.JSONModuleObject(map[string][]string{"pem_files": {file}}, "provider", "file", nil),
	}}
}

func made(t *testing.T, s *Settings) (*Client, error) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	return New(ctx, s)
}

// handshake connects c to a server of a and returns what the server has seen.
func (a *authority) handshake(c *Client) (client *x509.Certificate, err error) {
	a.t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{a.der}, PrivateKey: a.key}}, ClientAuth: tls.RequestClientCert,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan *x509.Certificate, 1)
	go func() {
		defer close(seen)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if server := conn.(*tls.Conn); server.Handshake() == nil {
			for _, cert := range server.ConnectionState().PeerCertificates {
				seen <- cert
			}
		}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		a.t.Fatal(err)
	}
	err = tls.Client(raw, c.For("a.test", "")).Handshake()
	if err != nil {
		_ = raw.Close()
	}
	client = <-seen
	_ = raw.Close()
	return client, err
}

func TestAServerThatAListNamesIsRefusedWithSNIAndWithout(t *testing.T) {
	a := newAuthority(t)
	for _, noSNI := range []bool{false, true} {
		for list, want := range map[string]string{a.list(8): "", a.list(7): "revocation: the certificate \"\" with the serial number 7 was revoked"} {
			s := a.settings()
			s.CRLFiles = []string{list}
			c, err := made(t, s)
			if err != nil {
				t.Fatal(err)
			}
			c.NoSNI = noSNI
			_, err = a.handshake(c)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("handshake with the list %s, without SNI %t: %v, want %q", list, noSNI, err, want)
			}
		}
	}
}

func TestClientsWithOtherListsDiffer(t *testing.T) {
	a := newAuthority(t)
	with := func(lists ...string) *Client {
		s := a.settings()
		s.CRLFiles = lists
		c, err := made(t, s)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	list := a.list(1)
	one, same, other, none := with(list), with(list), with(a.list(2)), with()
	if got := Difference(one, same); got != "" || Number(one) != Number(same) {
		t.Errorf("Difference() of equal ones = %q", got)
	}
	for _, c := range []*Client{other, none} {
		if got := Difference(one, c); got != "have different revocation lists" || Number(one) == Number(c) {
			t.Errorf("Difference() = %q, numbers %d and %d", got, Number(one), Number(c))
		}
	}
}

func TestAnEncryptedKeyIsUsedAndStaysOutOfTheSettings(t *testing.T) {
	a := newAuthority(t)
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := pemutil.EncryptPKCS8PrivateKey(rand.Reader, der, []byte("secret"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	s := a.settings()
	s.ClientCertificateFile, s.ClientCertificateKeyFile = a.file("cert.pem", "CERTIFICATE", a.der), a.file("key.pem", block.Type, block.Bytes)
	s.ClientCertificatePasswordFile = filepath.Join(a.dir, "passwords")
	before, _ := json.Marshal(s)
	for text, fits := range map[string]bool{"wrong\nsecret\n": true, "wrong\n": false} {
		if err := os.WriteFile(s.ClientCertificatePasswordFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := made(t, s)
		switch {
		case !fits && (err == nil || !strings.Contains(err.Error(), "client certificate: key ") || strings.Contains(err.Error(), "secret")):
			t.Errorf("New() = %v with a password that does not fit", err)
		case fits && err != nil:
			t.Errorf("New() = %v", err)
		case fits:
			if cert, err := a.handshake(c); err != nil || cert == nil || cert.SerialNumber.Int64() != 7 {
				t.Errorf("handshake: %v, the server has seen %v", err, cert)
			}
		}
		if after, _ := json.Marshal(s); string(after) != string(before) || strings.Contains(string(after), "PRIVATE") {
			t.Errorf("the settings became %s", after)
		}
	}
	s.ClientCertificatePasswordFile = ""
	if _, err := made(t, s); err == nil {
		t.Error("an encrypted key without passwords is no error")
	}
}

func TestWrongVersionsOfTLSAreRefused(t *testing.T) {
	for want, s := range map[string]Settings{
		`protocol_min "TLSv1.2": expected tls1.2 or tls1.3`:      {ProtocolMin: "TLSv1.2"},
		`protocol_max "tls1.1": expected tls1.2 or tls1.3`:       {ProtocolMax: "tls1.1"},
		"protocol_min tls1.3 is higher than protocol_max tls1.2": {ProtocolMin: "tls1.3", ProtocolMax: "tls1.2"},
	} {
		if _, err := New(caddy.Context{Context: t.Context()}, &s); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
