// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// authority is a certificate authority of this test's own.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate, PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = a.newKey()
	a.cert = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, a.key)
	a.file = a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// sign makes a certificate that is good for an hour, unless the template says
// when.
func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue makes a certificate for a name, and its files.
func (a *authority) issue(name string) (cert tls.Certificate, certFile, keyFile string) {
	a.t.Helper()
	return a.issueUntil(name, time.Time{})
}

// issueUntil is issue for one that is good for two hours until end.
func (a *authority) issueUntil(name string, end time.Time) (cert tls.Certificate, certFile, keyFile string) {
	a.t.Helper()
	key := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if !end.IsZero() {
		template.NotBefore, template.NotAfter = end.Add(-2*time.Hour), end
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	x := a.sign(template, a.cert, key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = a.write(name+".pem", "CERTIFICATE", x.Raw), a.write(name+".key", "EC PRIVATE KEY", der)
	return tls.Certificate{Certificate: [][]byte{x.Raw}, PrivateKey: key}, certFile, keyFile
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// tlsBackend is a backend that speaks TLS.
func tlsBackend(t *testing.T, config *tls.Config) *testnet.Backend {
	t.Helper()
	return testnet.NewBackendOn(t, func() (net.Listener, error) {
		return tls.Listen("tcp", "127.0.0.1:0", config)
	}, func(testnet.Request) testnet.Answer { return named("secret") })
}

func TestTLSToTheBackendChecksNameAndTrust(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var asked atomic.Value
	cert, _, _ := ca.issue("app.test")
	byIP, _, _ := ca.issue("127.0.0.1")
	named := tlsBackend(t, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		asked.Store(h.ServerName)
		return &cert, nil
	}})
	ip := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{byIP}})
	p := serve(t, group("named", named.Addr(), testnet.RefusedAddr(t)+" backup")+group("ip", ip.Addr())+
		group("other", named.Addr(), testnet.RefusedAddr(t)+" backup"), fmt.Sprintf(`
	proxy_pass /right https://named {
		tls_trust_pool file %[1]s
		tls_server_name app.test
	}
	proxy_pass /address https://ip {
		tls_trust_pool file %[1]s
	}
	proxy_pass /wrong https://other {
		tls_trust_pool file %[1]s
		tls_server_name evil.test
	}
	proxy_pass /untrusted https://ip
	proxy_pass /unchecked https://named {
		tls_insecure_skip_verify
	}`, ca.file))
	for target, want := range map[string]int{"/right": 200, "/address": 200, "/untrusted": 502, "/unchecked": 200} {
		if res := p.get(target); res.Status != want {
			t.Errorf("%s: status %d, want %d", target, res.Status, want)
		}
		if target == "/right" && asked.Load() != "app.test" {
			t.Errorf("the backend was asked for %q, want app.test", asked.Load())
		}
		p.waitConns(0)
	}
	if res := p.get("/wrong"); res.Status != 502 {
		t.Errorf("/wrong: status %d, want 502", res.Status)
	}
	if s := p.servers("other")[0].State; s.State != "unhealthy" || s.Failures != 1 {
		t.Errorf("wrong name: %+v, want a counted failure", s)
	}
	if n := len(named.Requests()); n != 2 {
		t.Errorf("the named backend got %d requests, want those of /right and /unchecked", n)
	}
}

func TestAClientCertificateIsSentToTheBackend(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	_, clientCert, clientKey := ca.issue("front.test")
	b := tlsBackend(t, &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	})
	p := serve(t, group("app", b.Addr()), fmt.Sprintf(`
	proxy_pass /with https://app {
		tls_trust_pool file %[1]s
		tls_client_auth %[2]s %[3]s
	}
	proxy_pass /without https://app {
		tls_trust_pool file %[1]s
	}`, ca.file, clientCert, clientKey))
	for target, want := range map[string]int{"/with": 200, "/without": 502} {
		if res := p.get(target); res.Status != want {
			t.Errorf("%s: status %d, want %d", target, res.Status, want)
		}
	}
}

// A connection must never be handed to a route that would not have trusted it.
func TestRoutesWithOtherTLSOptionsShareNoConnection(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("app.test")
	b := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	p := serve(t, group("app", b.Addr(), "keepalive 8"), fmt.Sprintf(`
	proxy_pass /unchecked https://app {
		tls_insecure_skip_verify
	}
	proxy_pass /right https://app {
		tls_trust_pool file %[1]s
		tls_server_name app.test
	}
	proxy_pass /same https://app {
		tls_trust_pool file %[1]s
		tls_server_name app.test
	}
	proxy_pass /lax https://app {
		tls_trust_pool file %[1]s
		tls_server_name app.test
		tls_insecure_skip_verify
	}
	proxy_pass /wrong https://app {
		tls_trust_pool file %[1]s
		tls_server_name evil.test
	}
	proxy_pass /plain app`, ca.file))
	for _, c := range []struct {
		target string
		status int
		conns  int
	}{{"/unchecked", 200, 1}, {"/right", 200, 2}, {"/lax", 200, 3}, {"/same", 200, 3}, {"/unchecked", 200, 3}, {"/wrong", 502, 4}, {"/plain", 502, 5}} {
		if res := p.get(c.target); res.Status != c.status {
			t.Errorf("%s: status %d, want %d", c.target, res.Status, c.status)
		}
		p.waitConns(0)
		if _, accepted := b.Conns(); accepted != c.conns {
			t.Errorf("after %s: %d connections, want %d", c.target, accepted, c.conns)
		}
	}
}

func TestASilentTLSHandshakeIs504(t *testing.T) {
	t.Parallel()
	mute := testnet.NewMute(t)
	p := serve(t, group("app", mute.Addr()), "\tproxy_pass https://app {\n\t\tconnect_timeout 300ms\n\t}")
	began := time.Now()
	if res := p.get("/"); res.Status != 504 || time.Since(began) > 5*time.Second {
		t.Errorf("status %d after %v, want 504 after 300 ms", res.Status, time.Since(began))
	}
}

func TestUnixSocketBackendsTakePart(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "cu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path, dead := filepath.Join(dir, "a.sock"), filepath.Join(dir, "dead.sock")
	b := testnet.NewBackendOn(t, func() (net.Listener, error) { return net.Listen("unix", path) },
		func(testnet.Request) testnet.Answer { return named("u") })
	tcp := testnet.NewBackend(t, named("t"))
	p := serve(t, group("app", "server unix/"+path, "server unix/"+dead+" max_fails=0", tcp.Addr()), "\tproxy_pass app")
	if got, want := p.bodies(3, "/"), "u t t"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
	p.get("/last")
	if addr, _ := p.tries("/last"); addr != "unix:"+path {
		t.Errorf("tried %q, want %q", addr, "unix:"+path)
	}
	if _, accepted := b.Conns(); accepted != 1 {
		t.Errorf("%d connections to the socket, want 1 that is kept", accepted)
	}
}
