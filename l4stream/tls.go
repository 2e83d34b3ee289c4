// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddytls"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/keyfile"
	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
)

func init() { caddy.RegisterModule(TLS{}) }

// TLS terminates TLS with Caddy's own TLS app: its certificates, its
// automation, its policies.
type TLS struct {
	// How connections are handled, as in Caddy's HTTP servers. Default: one
	// policy with Caddy's defaults.
	ConnectionPolicies caddytls.ConnectionPolicies `json:"connection_policies,omitempty"`

	// The names that Caddy shall get and renew certificates for.
	Subjects []string `json:"subjects,omitempty"`

	// Certificates from files, instead of those that Caddy manages.
	Certificates []CertificateFiles `json:"certificates,omitempty"`

	// How long the handshake may take. Default: 60s.
	HandshakeTimeout caddy.Duration `json:"handshake_timeout,omitempty"`

	config *tls.Config
	app    *caddytls.TLS
}

// CertificateFiles is a certificate and its key, in PEM files.
type CertificateFiles struct {
	// The file with the certificate and those that it is signed by.
	Certificate string `json:"certificate"`
	// The file with the private key.
	Key string `json:"key"`
	// The file with passwords, one a line; the first that fits opens the key.
	// Default: the key is not encrypted.
	PasswordFile string `json:"password_file,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (TLS) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.tls", New: func() caddy.Module { return new(TLS) }}
}

// Provision sets up the policies and reads certificate files.
func (t *TLS) Provision(ctx caddy.Context) error {
	if t.HandshakeTimeout < 0 {
		return fmt.Errorf("handshake_timeout %s: must not be negative", time.Duration(t.HandshakeTimeout))
	}
	if t.HandshakeTimeout == 0 {
		t.HandshakeTimeout = caddy.Duration(time.Minute)
	}
	app, err := ctx.App("tls")
	if err != nil {
		return fmt.Errorf("tls app: %w", err)
	}
	t.app = app.(*caddytls.TLS)
	if len(t.ConnectionPolicies) == 0 {
		t.ConnectionPolicies = caddytls.ConnectionPolicies{new(caddytls.ConnectionPolicy)}
	}
	if err := t.ConnectionPolicies.Provision(ctx); err != nil {
		return fmt.Errorf("connection_policies: %w", err)
	}
	var certs []tls.Certificate
	for _, f := range t.Certificates {
		cert, err := keyfile.Load(f.Certificate, f.Key, f.PasswordFile)
		if err != nil {
			return fmt.Errorf("certificate %s: %w", f.Certificate, err)
		}
		certs = append(certs, cert)
	}
	for _, p := range t.ConnectionPolicies {
		if len(certs) > 0 {
			p.TLSConfig.Certificates, p.TLSConfig.GetCertificate = certs, nil
		}
		noteCertificate(p.TLSConfig)
	}
	t.config = t.ConnectionPolicies.TLSConfig(ctx)
	return t.provisionInternal()
}

// provisionInternal makes Caddy's own authority the issuer for names that no
// public one gives certificates for, as Caddy's HTTP servers do, unless the
// configuration says what is to be done for them.
func (t *TLS) provisionInternal() error {
	var names []string
	for _, name := range t.Subjects {
		if !certmagic.SubjectQualifiesForPublicCert(name) && !t.hasPolicy(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	err := t.app.AddAutomationPolicy(&caddytls.AutomationPolicy{
		SubjectsRaw: names,
		IssuersRaw:  []json.RawMessage{json.RawMessage(`{"module":"internal"}`)},
	})
	if err != nil {
		return fmt.Errorf("certificates for %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}

func (t *TLS) hasPolicy(name string) bool {
	if t.app.Automation == nil {
		return false
	}
	return slices.ContainsFunc(t.app.Automation.Policies, func(p *caddytls.AutomationPolicy) bool {
		return len(p.SubjectsRaw) == 0 || slices.ContainsFunc(p.SubjectsRaw, func(s string) bool { return certmagic.MatchWildcard(name, s) })
	})
}

// start asks Caddy to manage the certificates.
func (t *TLS) start() error {
	if len(t.Subjects) == 0 {
		return nil
	}
	subjects := map[string]struct{}{}
	for _, s := range t.Subjects {
		subjects[s] = struct{}{}
	}
	return t.app.Manage(subjects)
}

// Phase implements Handler.
func (*TLS) Phase() Phase { return SSL }

func (*TLS) checkProtocols(_, udp bool) error {
	if udp {
		return errors.New("tls does not go with udp/ addresses")
	}
	return nil
}

// Handle implements Handler.
func (t *TLS) Handle(s *Session) error {
	conn := tls.Server(&servedConn{s.unread(), s}, t.config)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(t.HandshakeTimeout))
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return &End{Status: StatusInternal, Err: fmt.Errorf("tls handshake: %w", err), Client: true}
	}
	state := conn.ConnectionState()
	s.Conn, s.tls = conn, &state
	return nil
}

// servedConn is a connection under TLS that knows its session.
type servedConn struct {
	net.Conn
	session *Session
}

// noteCertificate lets sessions know which certificate they are served with.
func noteCertificate(c *tls.Config) {
	static, get := c.Certificates, c.GetCertificate
	c.Certificates = nil
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := chooseCertificate(hello, static, get)
		if served, ok := hello.Conn.(*servedConn); ok && err == nil {
			served.session.cert = cert
		}
		return cert, err
	}
}

// chooseCertificate does what crypto/tls does with a configuration.
func chooseCertificate(hello *tls.ClientHelloInfo, static []tls.Certificate, get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*tls.Certificate, error) {
	if get != nil {
		return get(hello)
	}
	for i := range static {
		if hello.SupportsCertificate(&static[i]) == nil {
			return &static[i], nil
		}
	}
	if len(static) == 0 {
		return nil, errors.New("no certificate")
	}
	return &static[0], nil
}

// UnmarshalCaddyfile reads:
//
//	tls [<certificate file> <key file>] | [<name...>] {
//	    handshake_timeout <duration>
//	    connection_policy {
//	        ...
//	    }
//	}
func (t *TLS) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	args := d.RemainingArgs()
	if len(args) == 2 && isFile(args[0]) && isFile(args[1]) {
		t.Certificates = []CertificateFiles{{Certificate: args[0], Key: args[1]}}
	} else {
		t.Subjects = args
	}
	return cfg.Options{
		"handshake_timeout": cfg.Duration(&t.HandshakeTimeout),
		"certificate": func(d *caddyfile.Dispenser) error {
			var f CertificateFiles
			if !d.Args(&f.Certificate, &f.Key) {
				return d.Err("certificate: expected <certificate file> <key file> [<password file>]")
			}
			if d.NextArg() {
				f.PasswordFile = d.Val()
			}
			if d.NextArg() {
				return d.Err("certificate: expected <certificate file> <key file> [<password file>]")
			}
			t.Certificates = append(t.Certificates, f)
			return nil
		},
		"connection_policy": func(d *caddyfile.Dispenser) error {
			p := new(caddytls.ConnectionPolicy)
			t.ConnectionPolicies = append(t.ConnectionPolicies, p)
			return p.UnmarshalCaddyfile(d.NewFromNextSegment())
		},
	}.Block(d, "tls", cfg.Repeatable{"certificate": true, "connection_policy": true})
}

// isFile tells the file of a certificate or key from the name of a host.
func isFile(arg string) bool {
	for i := range len(arg) {
		if arg[i] == '/' || arg[i] == '\\' {
			return true
		}
	}
	n := len(arg)
	return n > 4 && (arg[n-4:] == ".pem" || arg[n-4:] == ".crt" || arg[n-4:] == ".key")
}

// The texts of nginx's variables for a TLS connection.

func (s *Session) tlsText(f func(*tls.ConnectionState) string) string {
	if s.tls == nil {
		return ""
	}
	return f(s.tls)
}

func tlsVersion(c *tls.ConnectionState) string    { return proxyproto.VersionName(c.Version) }
func tlsCipher(c *tls.ConnectionState) string     { return proxyproto.CipherName(c.CipherSuite) }
func tlsServerName(c *tls.ConnectionState) string { return c.ServerName }
func tlsProtocol(c *tls.ConnectionState) string   { return c.NegotiatedProtocol }

func tlsReused(c *tls.ConnectionState) string {
	if c.DidResume {
		return "r"
	}
	return "."
}

func tlsClientDN(c *tls.ConnectionState) string {
	if len(c.PeerCertificates) == 0 {
		return ""
	}
	return c.PeerCertificates[0].Subject.String()
}

// tlsClientCert is the client's certificate in PEM, each line but the first after
// a tab, as nginx has it for header fields.
func tlsClientCert(c *tls.ConnectionState) string {
	if len(c.PeerCertificates) == 0 {
		return ""
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.PeerCertificates[0].Raw})
	return strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n\t")
}

func tlsClientVerify(c *tls.ConnectionState) string {
	switch {
	case len(c.PeerCertificates) == 0:
		return "NONE"
	case len(c.VerifiedChains) > 0:
		return "SUCCESS"
	}
	return "FAILED"
}

// Interface guards
var (
	_ Handler               = (*TLS)(nil)
	_ caddy.Provisioner     = (*TLS)(nil)
	_ caddyfile.Unmarshaler = (*TLS)(nil)
)
