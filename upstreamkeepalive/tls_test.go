// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

func isDialError(err error) bool {
	var d reverseproxy.DialError
	return errors.As(err, &d)
}

// authority is a certificate authority with one server certificate.
type authority struct {
	root   string // base64 DER, as Caddy wants it
	server tls.Certificate
}

func newAuthority(t *testing.T, names ...string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return authority{
		root:   base64.StdEncoding.EncodeToString(der),
		server: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}
}

// tlsServer answers over TLS with the server name and how many handshakes of
// full length there were.
func tlsServer(t *testing.T, ca authority, full *atomic.Int64, handle func(int, net.Conn, *bufio.Reader)) *rawServer {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.server},
		VerifyConnection: func(s tls.ConnectionState) error {
			if !s.DidResume && full != nil {
				full.Add(1)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, l, handle)
}

func tlsTransport(t *Transport) *Transport {
	t.TLS = new(TLS)
	return t
}

func trusting(ca authority, server string) *Transport {
	pool := caddyconfig.JSONModuleObject(caddytls.InlineCAPool{TrustedCACerts: []string{ca.root}}, "provider", "inline", nil)
	return &Transport{TLS: &TLS{TLSConfig: reverseproxy.TLSConfig{CARaw: pool, ServerName: server}}}
}

func unverified() *Transport {
	return &Transport{TLS: &TLS{TLSConfig: reverseproxy.TLSConfig{InsecureSkipVerify: true}}}
}

func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t, "a.test"), newAuthority(t, "a.test")
	s := tlsServer(t, ours, nil, answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
	for _, tt := range []struct {
		name string
		tr   *Transport
		ok   bool
	}{
		{"the address is the name by default", trusting(ours, ""), true},
		{"another name", trusting(ours, "a.test"), true},
		{"a name that is not in the certificate", trusting(ours, "b.test"), false},
		{"another authority", trusting(theirs, "a.test"), false},
		{"the system's authorities", tlsTransport(new(Transport)), false},
		{"no verification", unverified(), true},
		{"no TLS", new(Transport), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := provisioned(t, tt.tr)
			for i := range 3 {
				a := new(exchange.Attempt)
				res, err := tr.Exchange(request(t, "GET", s.Addr(), nil), a)
				if (err == nil) != tt.ok {
					t.Fatalf("Exchange() = %v, want success %v", err, tt.ok)
				}
				if err != nil {
					continue
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if string(b) != "hi" || err != nil || res.TLS == nil || a.Reused != (i > 0) {
					t.Errorf("request %d: %q %v, reused %v", i, b, err, a.Reused)
				}
			}
		})
	}
	t.Run("a failed handshake is the server's failure", func(t *testing.T) {
		_, err := provisioned(t, trusting(theirs, "")).Exchange(request(t, "GET", s.Addr(), nil), new(exchange.Attempt))
		var e *exchange.Error
		if !errors.As(err, &e) || e.Kind != exchange.Failed || e.Op != "tls handshake" || e.Sent {
			t.Errorf("Exchange() = %+v", err)
		}
	})
}

func TestConnectionsAreNotSharedAcrossTLSSettings(t *testing.T) {
	ca := newAuthority(t, "a.test", "b.test")
	var full atomic.Int64
	s := tlsServer(t, ca, &full, answering(okEmpty))
	store, n := newStore(t), 8
	kinds := map[string]func() *Transport{
		"a.test":      func() *Transport { return trusting(ca, "a.test") },
		"b.test":      func() *Transport { return trusting(ca, "b.test") },
		"no check":    unverified,
		"other local": func() *Transport { tr := trusting(ca, "a.test"); tr.BindAddress = "127.0.0.1"; return tr },
	}
	for name, newTransport := range kinds {
		for i := range 2 { // two handlers of each kind
			tr := provisioned(t, newTransport())
			if err := tr.Bind(store, exchange.Keepalive{Connections: &n}); err != nil {
				t.Fatal(err)
			}
			a := new(exchange.Attempt)
			res, err := tr.Exchange(request(t, "GET", s.Addr(), nil), a)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if a.Reused != (i == 1) {
				t.Errorf("%s, handler %d: reused %v", name, i, a.Reused)
			}
		}
	}
	if full.Load() != int64(len(kinds)) {
		t.Errorf("%d full handshakes, want %d: sessions are shared", full.Load(), len(kinds))
	}
}

func TestTLSSessionsAreResumedPerServer(t *testing.T) {
	ca := newAuthority(t, "a.test")
	var full atomic.Int64
	s1, s2 := tlsServer(t, ca, &full, answering(okEmpty)), tlsServer(t, ca, &full, answering(okEmpty))
	off := trusting(ca, "a.test")
	off.Keepalive = new(int)
	tr := provisioned(t, off)
	for range 3 {
		get(t, tr, s1.Addr())
		get(t, tr, s2.Addr())
	}
	if full.Load() != 2 {
		t.Errorf("%d full handshakes, want one for each server", full.Load())
	}
	never := trusting(ca, "a.test")
	never.Keepalive, never.TLS.NoSessionResumption = new(int), true
	tr = provisioned(t, never)
	for range 3 {
		get(t, tr, s1.Addr())
	}
	if full.Load() != 5 {
		t.Errorf("%d full handshakes more, want one for each connection", full.Load()-2)
	}
}

func TestVersionsOfTLSCanBeChosen(t *testing.T) {
	ca := newAuthority(t, "a.test")
	s := tlsServer(t, ca, nil, answering(okEmpty))
	for _, want := range []struct {
		low, high string
		version   uint16
	}{{"", "", tls.VersionTLS13}, {"tls1.2", "", tls.VersionTLS13}, {"", "tls1.2", tls.VersionTLS12}, {"tls1.3", "tls1.3", tls.VersionTLS13}} {
		c := trusting(ca, "a.test")
		c.TLS.ProtocolMin, c.TLS.ProtocolMax = want.low, want.high
		res, err := provisioned(t, c).RoundTrip(request(t, "GET", s.Addr(), nil))
		if err != nil {
			t.Fatalf("%q to %q: %v", want.low, want.high, err)
		}
		res.Body.Close()
		if res.TLS.Version != want.version {
			t.Errorf("%q to %q: version %s, want %s", want.low, want.high, tls.VersionName(res.TLS.Version), tls.VersionName(want.version))
		}
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.server}, MaxVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	old := serve(t, l, answering(okEmpty))
	c := trusting(ca, "a.test")
	c.TLS.ProtocolMin = "tls1.3"
	if _, err := provisioned(t, c).RoundTrip(request(t, "GET", old.Addr(), nil)); err == nil {
		t.Error("a server of TLS 1.2 was accepted where 1.3 is the lowest")
	}
}

func TestHiddenTLSBytesSpoilAConnection(t *testing.T) {
	ca := newAuthority(t)
	answer := []byte(okEmpty)
	for name, after := range map[string]func(c net.Conn){
		"a record with data":     func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) },
		"a close_notify":         func(c net.Conn) { _ = c.(*tls.Conn).CloseWrite() },
		"the start of a record":  func(c net.Conn) { _, _ = c.(*tls.Conn).NetConn().Write([]byte{23, 3, 3}) },
		"a record without a end": func(c net.Conn) { _, _ = c.(*tls.Conn).NetConn().Write([]byte{23, 3, 3, 0, 99, 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := tlsServer(t, ca, nil, func(_ int, c net.Conn, r *bufio.Reader) {
				for {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					_, _ = c.Write(answer)
					after(c)
				}
			})
			tr := provisioned(t, trusting(ca, ""))
			get(t, tr, s.Addr())
			eventually(t, "the connection is gone or known to be bad", func() bool {
				tr.cache.mu.Lock()
				defer tr.cache.mu.Unlock()
				c := tr.cache.recent.first
				return c == nil || !c.silent()
			})
			a := &exchange.Attempt{StaleFails: true}
			res, err := tr.Exchange(request(t, "GET", s.Addr(), nil), a)
			if err != nil || a.Reused {
				t.Fatalf("Exchange() = %v, reused %v", err, a.Reused)
			}
			res.Body.Close()
		})
	}
}

func TestTheGateFollowsRecords(t *testing.T) {
	stream := []byte{22, 3, 3, 0, 2, 9, 9, 23, 3, 3, 1, 0}
	stream = append(stream, make([]byte, 256)...)
	stream = append(stream, 21, 3, 3, 0, 0)
	borders := map[int]bool{7: true, 7 + 5 + 256: true, len(stream): true}
	for _, piece := range []int{1, 2, 3, 7, 1000} {
		g, at := new(gate), 0
		for at < len(stream) {
			n := min(piece, len(stream)-at)
			g.follow(stream[at : at+n])
			at += n
			if got := g.have == 0 && g.rest == 0; got != borders[at] {
				t.Errorf("pieces of %d: at %d a border is %v, want %v", piece, at, got, borders[at])
			}
		}
	}
}
