// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func pool(names ...string) *x509.CertPool {
	p := x509.NewCertPool()
	for _, n := range names {
		p.AddCert(&x509.Certificate{Raw: []byte(n), RawSubject: []byte(n)})
	}
	return p
}

func TestClientsThatDifferSayInWhatAndHaveOtherNumbers(t *testing.T) {
	base := func() *Client { return &Client{Config: new(tls.Config)} }
	for _, tt := range []struct {
		what   string
		change func(*Client)
	}{
		{"different names", func(c *Client) { c.Config.ServerName = "a.test" }},
		{"verify certificates", func(c *Client) { c.Config.InsecureSkipVerify = true }},
		{"different authorities", func(c *Client) { c.Config.RootCAs = pool("a") }},
		{"client certificates", func(c *Client) { c.Config.Certificates = []tls.Certificate{{Certificate: [][]byte{{1}}}} }},
		{"client certificates", func(c *Client) { c.Automated = "a.test" }},
		{"except different ports", func(c *Client) { c.ExceptPorts = []string{"80"} }},
		{"send the server's name", func(c *Client) { c.NoSNI = true }},
		{"from different places", func(c *Client) { c.ByAddress = true }},
		{"renegotiation", func(c *Client) { c.Config.Renegotiation = tls.RenegotiateFreelyAsClient }},
		{"versions of TLS", func(c *Client) { c.Config.MinVersion = tls.VersionTLS13 }},
		{"versions of TLS", func(c *Client) { c.Config.MaxVersion = tls.VersionTLS12 }},
		{"curves", func(c *Client) { c.Config.CurvePreferences = []tls.CurveID{tls.X25519} }},
	} {
		a, b, same := base(), base(), base()
		tt.change(b)
		tt.change(same)
		if got := Difference(a, b); !strings.Contains(got, tt.what) {
			t.Errorf("Difference() = %q, want %q", got, tt.what)
		}
		if got := Difference(b, same); got != "" {
			t.Errorf("Difference() of equal clients = %q (%s)", got, tt.what)
		}
		if Number(b) != Number(same) || Number(a) == Number(b) {
			t.Errorf("numbers %d, %d and %d: want those of the equal ones equal, and the other not (%s)", Number(a), Number(b), Number(same), tt.what)
		}
	}
	if got := Difference(base(), nil); got != "do not all use TLS" || Difference(nil, nil) != "" || Number(nil) != 0 {
		t.Errorf("Difference() with nil = %q", got)
	}
	one, other := &Client{Config: &tls.Config{RootCAs: pool("a")}}, &Client{Config: &tls.Config{RootCAs: pool("b")}}
	if Difference(one, other) == "" || Number(one) == Number(other) {
		t.Error("clients that trust different authorities are taken for equal")
	}
	fixed := &Client{Config: &tls.Config{ServerName: "a.test"}, ByAddress: true}
	if got := Difference(fixed, &Client{Config: &tls.Config{ServerName: "a.test"}}); got != "" {
		t.Errorf("Difference() = %q where the name is fixed", got)
	}
}

func TestTransportsSayHowTheyTalkToServers(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	plain := new(reverseproxy.HTTPTransport)
	secure := &reverseproxy.HTTPTransport{TLS: &reverseproxy.TLSConfig{ServerName: "a.test", InsecureSkipVerify: true, ExceptPorts: []string{"80"}}}
	for _, h := range []*reverseproxy.HTTPTransport{plain, secure} {
		if err := h.Provision(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, none := range []http.RoundTripper{nil, plain} {
		if c, known := Of(none); c != nil || !known {
			t.Errorf("Of(%T) = %v, %t, want no TLS, known", none, c, known)
		}
	}
	c, known := Of(secure)
	if !known || c == nil || c.Config.ServerName != "a.test" || !c.Config.InsecureSkipVerify || !c.ByAddress || len(c.ExceptPorts) != 1 {
		t.Errorf("Of(http with TLS) = %+v, %t", c, known)
	}
	if _, known := Of(http.DefaultTransport); known {
		t.Error("something is known of a foreign transport")
	}
}
