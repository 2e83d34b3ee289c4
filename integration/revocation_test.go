// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.step.sm/crypto/pemutil"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// between makes an authority that a has signed.
func (a *authority) between() *authority {
	b := &authority{t: a.t, dir: a.t.TempDir()}
	b.key = b.newKey()
	b.cert = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "authority between"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, a.cert, b.key)
	return b
}

// revoke makes a list of what a has revoked, in force for an hour if it is not
// expired.
func (a *authority) revoke(expired bool, certs ...tls.Certificate) string {
	a.t.Helper()
	now := time.Now()
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-2 * time.Hour), NextUpdate: now.Add(time.Hour)}
	if expired {
		l.NextUpdate = now.Add(-time.Hour)
	}
	for _, c := range certs {
		x, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			a.t.Fatal(err)
		}
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: x.SerialNumber, RevocationTime: now.Add(-time.Hour)})
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

// revocations are files of lists by what a server's certificate is by them, for
// a certificate that below has signed, which root has signed.
func revocations(t *testing.T, root, below *authority, cert tls.Certificate) map[string]string {
	t.Helper()
	dir, files := t.TempDir(), map[string]string{}
	for name, text := range map[string]string{
		"good":    root.revoke(false) + below.revoke(false),
		"revoked": root.revoke(false) + below.revoke(false, cert),
		"between": root.revoke(false, tls.Certificate{Certificate: [][]byte{below.cert.Raw}}) + below.revoke(false),
		"expired": root.revoke(false) + below.revoke(true),
		"partial": below.revoke(false),
		"foreign": newAuthority(t).revoke(false),
	} {
		files[name] = filepath.Join(dir, name+".pem")
		writeFile(t, files[name], text)
	}
	return files
}

// listedServer is an authority, a certificate for app.example that one between
// them has signed, and the files of revocations for it.
func listedServer(t *testing.T) (root *authority, cert tls.Certificate, lists map[string]string) {
	t.Helper()
	root = newAuthority(t)
	below := root.between()
	cert, _, _ = below.issue("app.example")
	lists = revocations(t, root, below, cert)
	cert.Certificate = append(cert.Certificate, below.cert.Raw)
	return root, cert, lists
}

func TestRevocationListsForServersCountAsInNginx(t *testing.T) {
	t.Parallel()
	root, cert, lists := listedServer(t)
	backend := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	grpc := newGRPCServer(t, "g", &tls.Config{Certificates: []tls.Certificate{cert}})
	conf := "http { access_log off; upstream app.example { server " + backend.Addr() + "; } upstream g.example { server " + grpc.addr + "; }\n" +
		// nginx resumes sessions of other locations, without looking at lists
		" proxy_ssl_session_reuse off; grpc_ssl_session_reuse off; proxy_ssl_name app.example; grpc_ssl_name app.example;\n" +
		" proxy_ssl_trusted_certificate " + root.file + "; grpc_ssl_trusted_certificate " + root.file + ";\n server { listen FRONT; listen OTHER;\n"
	var paths []string
	for name, file := range lists {
		for _, verify := range []string{"on", "off"} {
			path := "/" + name + verify
			conf += fmt.Sprintf("  location %s { proxy_pass https://app.example; proxy_ssl_verify %s; proxy_ssl_crl %s; }\n", path, verify, file) +
				fmt.Sprintf("  location /g%s { grpc_pass grpcs://g.example; grpc_ssl_verify %s; grpc_ssl_crl %s; }\n", path, verify, file)
			paths = append(paths, path, "/g"+path)
		}
	}
	onBoth(t, conf+" } }\n", func(front, _ string) []string {
		var out []string
		for _, path := range paths {
			out = append(out, fmt.Sprint(path, testnet.Get(t, "http://"+front+path).Status))
		}
		return out
	})
}

func TestRevocationListsForServersOfStreamCountAsInNginx(t *testing.T) {
	t.Parallel()
	root, cert, lists := listedServer(t)
	backend := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	conf := "stream { upstream app.example { server " + backend.Addr() + "; }\n proxy_ssl on; proxy_ssl_session_reuse off; proxy_ssl_verify on; proxy_ssl_trusted_certificate " + root.file + ";\n"
	for listen, list := range map[string]string{"FRONT": "good", "OTHER": "revoked"} {
		conf += fmt.Sprintf(" server { listen %s; proxy_pass app.example; proxy_ssl_crl %s; }\n", listen, lists[list])
	}
	onBoth(t, conf+"}\n", func(front, other string) []string {
		var out []string
		for _, addr := range []string{front, other} {
			res, err := exchangeOnce(addr, "GET", "/", nil, nil)
			out = append(out, fmt.Sprint(res.Status, res.Text(), err == nil))
		}
		return out
	})
}

func TestRevocationListsForClientsRefuseThoseInThem(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	_, cert, key := ca.issue("one.example")
	good, _, _ := ca.issue("good.example")
	bad, _, _ := ca.issue("bad.example")
	list := filepath.Join(t.TempDir(), "crl.pem")
	writeFile(t, list, ca.revoke(false, bad))
	tlsLines := fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; ssl_verify_client optional; ssl_client_certificate %s; ssl_crl %s;", cert, key, ca.file, list)
	conf := "http { access_log off; server { listen FRONT ssl; " + tlsLines + " return 200 \"$ssl_client_verify $ssl_client_s_dn\"; } }\n" +
		"stream { server { listen OTHER ssl; " + tlsLines + " return \"$ssl_client_verify $ssl_client_s_dn\"; } }\n"
	onBoth(t, conf, func(front, other string) []string {
		var out []string
		for i, client := range []*tls.Certificate{nil, &good, &bad} {
			config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
			if client != nil {
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client, nil }
			}
			answer := "refused" // with a page in nginx, in the handshake here
			if c, err := testnet.DialTLS(front, config); err == nil {
				if res, err := c.Do("GET", "/", []string{"Host: x", "Connection: close"}, nil); err == nil && res.Status != http.StatusBadRequest {
					answer = res.Text()
				}
				c.Close()
			}
			said := "refused"
			config.NextProtos = nil
			if c, err := testnet.DialTLS(other, config); err == nil {
				if text, err := io.ReadAll(c.Conn); err == nil && len(text) > 0 {
					said = string(text)
				}
				c.Close()
			}
			out = append(out, fmt.Sprint(i, answer, said))
		}
		return out
	})
}

func TestEncryptedKeysAreShownToServersAsInNginx(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server, _, _ := ca.issue("app.example")
	client, certFile, _ := ca.issue("client.example")
	der, err := x509.MarshalPKCS8PrivateKey(client.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	block, err := pemutil.EncryptPKCS8PrivateKey(rand.Reader, der, []byte("secret"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := ca.write("encrypted.key", block.Type, block.Bytes)
	passwords := filepath.Join(t.TempDir(), "passwords")
	writeFile(t, passwords, "wrong\nsecret\n")
	config := &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()}
	backend, grpc := tlsBackend(t, config), newGRPCServer(t, "g", config.Clone())
	lines := func(prefix string) string {
		return fmt.Sprintf(" %[1]sssl_certificate %[2]s; %[1]sssl_certificate_key %[3]s; %[1]sssl_password_file %[4]s;\n", prefix, certFile, keyFile, passwords)
	}
	conf := "http { access_log off;\n" + lines("proxy_") + lines("grpc_") + " server { listen FRONT;\n" +
		"  location / { proxy_pass https://" + backend.Addr() + "; }\n  location /grpc { grpc_pass grpcs://" + grpc.addr + "; } } }\n" +
		"stream { proxy_ssl on;\n" + lines("proxy_") + " server { listen OTHER; proxy_pass " + backend.Addr() + "; } }\n"
	onBoth(t, conf, func(front, other string) []string {
		var out []string
		for _, url := range []string{front + "/", front + "/grpc", other + "/"} {
			out = append(out, fmt.Sprint(testnet.Get(t, "http://"+url).Status))
		}
		if strings.Join(out, " ") != "200 200 200" {
			t.Errorf("answers %s, want three times 200", out)
		}
		return out
	})
}

func TestARevokedServerIsUnhealthyAfterAReloadWithTheNewList(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("app.test")
	b := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	list := filepath.Join(t.TempDir(), "crl.pem")
	writeFile(t, list, ca.revoke(false))
	text := config(group("app", b.Addr()+" id=s", "keepalive 4", "health_check interval=200ms timeout=30s"), fmt.Sprintf(
		"\tproxy_pass https://app {\n\t\ttls_trust_pool file %s\n\t\ttls_server_name app.test\n\t\ttls_crl %s\n\t}", ca.file, list))
	p := start(t, text)
	testnet.Eventually(t, 30*time.Second, "a check over TLS", func() bool { return checked(b) })
	p.waitState("s", "up")
	if res := p.get("/"); res.Status != http.StatusOK {
		t.Fatalf("status %d with nothing revoked", res.Status)
	}
	writeFile(t, list, ca.revoke(false, cert))
	p.MustReload(strings.Replace(text, "proxy_pass", "header X-Load 2\n\tproxy_pass", 1), nil)
	s := p.waitState("s", "unhealthy")
	if len(s.Checks) == 0 || !strings.Contains(s.Checks[0].Reason, "was revoked by") {
		t.Errorf("the checks say %v, want that the certificate was revoked", s.Checks)
	}
	if res := p.get("/"); res.Status == http.StatusOK {
		t.Error("a server that is revoked still answers, over a connection from before")
	}
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Reload(strings.Replace(text, list, bad, 1), nil); err == nil || !strings.Contains(err.Error(), "crl_files: "+bad+": no revocation list in it") {
		t.Errorf("reload with a file that is no list: %v", err)
	}
}
