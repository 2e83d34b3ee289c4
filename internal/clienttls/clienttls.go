// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package clienttls is TLS to the servers of a group, in a form in which the
// handlers of the group can tell the group's checks what they do.
package clienttls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/crlfile"
)

// Client is how somebody talks TLS to servers. It is not changed once made.
type Client struct {
	// Config has no ServerName where the name is that of the server.
	Config *tls.Config
	// ExceptPorts are those of servers that are talked to without TLS.
	ExceptPorts []string
	// HandshakeTimeout limits the handshake; 0: nothing but the context does.
	HandshakeTimeout time.Duration
	// ByAddress: the name of a server is the host of the address that is dialled,
	// and not that of its line.
	ByAddress bool
	// NoSNI keeps the name out of the hello. The certificate must be for it anyway.
	NoSNI bool
	// Automated is the name of a client certificate that Caddy manages.
	Automated string
	// Revoked are the lists that Config checks certificates against, nil if there
	// are none.
	Revoked *crlfile.Lists
}

func of(settings *reverseproxy.TLSConfig, config *tls.Config) *Client {
	if config == nil { // Caddy's way to say that nothing is special
		config = new(tls.Config)
	}
	return &Client{
		Config: config, ExceptPorts: settings.ExceptPorts, Automated: settings.ClientCertificateAutomate,
		HandshakeTimeout: time.Duration(settings.HandshakeTimeout),
	}
}

// User is a transport of ours.
type User interface {
	// ServerTLS returns how it talks TLS to servers, nil if it does without. It
	// reports false if there is nothing to say: it talks something else, or
	// stands around a transport of which nothing is known.
	ServerTLS() (c *Client, known bool)
}

// Of asks a transport that has been provisioned; nil is Caddy's default one.
func Of(transport http.RoundTripper) (c *Client, known bool) {
	switch t := transport.(type) {
	case nil:
		return nil, true
	case User:
		return t.ServerTLS()
	case *reverseproxy.HTTPTransport:
		if t.TLS == nil {
			return nil, true
		}
		var config *tls.Config
		if t.Transport != nil && t.Transport.TLSClientConfig != nil {
			config = t.Transport.TLSClientConfig.Clone()
			config.NextProtos = nil // the versions of HTTP, which are the transport's own business
		}
		c = of(t.TLS, config)
		c.ByAddress = true
		return c, true
	}
	return nil, false
}

// For returns the configuration for a server. name is the host of its line,
// address what is dialled.
func (c *Client) For(name, address string) *tls.Config {
	config := c.Config.Clone()
	if config.ServerName == "" {
		config.ServerName = name
		if c.ByAddress {
			config.ServerName = address
		}
	}
	if c.NoSNI {
		WithoutSNI(config)
	}
	return config
}

// WithoutSNI keeps the name out of the hello but checks the certificate for it.
func WithoutSNI(c *tls.Config) {
	name, verify, further := c.ServerName, !c.InsecureSkipVerify, c.VerifyConnection
	c.ServerName, c.InsecureSkipVerify = "", true
	if !verify {
		return
	}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: c.RootCAs, DNSName: name, Intermediates: x509.NewCertPool()}
		for _, cert := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(cert)
		}
		chains, err := state.PeerCertificates[0].Verify(options)
		if err != nil || further == nil {
			return err
		}
		state.VerifiedChains = chains
		return further(state)
	}
}

// Difference says, in words that follow "they", in what two clients differ; it
// is empty if they do not. nil is somebody who does without TLS.
func Difference(a, b *Client) string {
	switch {
	case a == nil && b == nil:
		return ""
	case a == nil || b == nil:
		return "do not all use TLS"
	case a.Config.ServerName != b.Config.ServerName:
		return fmt.Sprintf("expect different names in certificates: %s and %s", nameIn(a), nameIn(b))
	case a.Config.InsecureSkipVerify != b.Config.InsecureSkipVerify:
		return "do not all verify certificates"
	case !samePool(a.Config.RootCAs, b.Config.RootCAs):
		return "trust different authorities"
	case !a.Revoked.Equal(b.Revoked):
		return "have different revocation lists"
	case a.Automated != b.Automated || !slices.EqualFunc(a.Config.Certificates, b.Config.Certificates, sameCertificate):
		return "have different client certificates"
	case !slices.Equal(a.ExceptPorts, b.ExceptPorts):
		return "except different ports from TLS"
	case a.NoSNI != b.NoSNI:
		return "do not all send the server's name"
	case a.ByAddress != b.ByAddress && a.Config.ServerName == "":
		return "take the names in certificates from different places: the server's line, and, as Caddy's http transport does, its address"
	case a.Config.Renegotiation != b.Config.Renegotiation:
		return "differ in renegotiation"
	case !slices.Equal(a.Config.CurvePreferences, b.Config.CurvePreferences):
		return "differ in curves"
	case a.Config.MinVersion != b.Config.MinVersion || a.Config.MaxVersion != b.Config.MaxVersion:
		return "differ in versions of TLS"
	}
	return ""
}

func nameIn(c *Client) string {
	if c.Config.ServerName == "" {
		return "the server's own"
	}
	return c.Config.ServerName
}

func samePool(a, b *x509.CertPool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

func sameCertificate(a, b tls.Certificate) bool {
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// numbers gives equal clients equal numbers, for as long as one of them lives.
var numbers struct {
	mu    sync.Mutex // guards what follows
	known []numbered
	last  uint64
}

type numbered struct {
	client weak.Pointer[Client]
	number uint64
}

// Number names what c does, what was read from files included: equal clients
// have the same number, others never do. It is 0 for nil.
func Number(c *Client) uint64 {
	if c == nil {
		return 0
	}
	numbers.mu.Lock()
	defer numbers.mu.Unlock()
	numbers.known = slices.DeleteFunc(numbers.known, func(k numbered) bool { return k.client.Value() == nil })
	var equal uint64
	for _, k := range numbers.known {
		known := k.client.Value()
		if known == c {
			return k.number
		}
		if known != nil && known.HandshakeTimeout == c.HandshakeTimeout &&
			slices.Equal(known.Config.NextProtos, c.Config.NextProtos) && Difference(known, c) == "" {
			equal = k.number
		}
	}
	if equal == 0 {
		numbers.last++
		equal = numbers.last
	}
	numbers.known = append(numbers.known, numbered{weak.Make(c), equal})
	return equal
}

// Settled returns c with the placeholders of the environment replaced in the
// name of its servers. It reports false if there are others, which only a
// request has a value for.
func (c *Client) Settled() (*Client, bool) {
	if c == nil || !strings.Contains(c.Config.ServerName, "{") {
		return c, true
	}
	n := *c
	n.Config = c.Config.Clone()
	n.Config.ServerName = caddy.NewReplacer().ReplaceKnown(c.Config.ServerName, "")
	return &n, !strings.Contains(n.Config.ServerName, "{")
}
