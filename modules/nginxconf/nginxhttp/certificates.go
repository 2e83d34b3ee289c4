// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/internal/keyfile"
)

func init() { caddy.RegisterModule(Certificates{}) }

// Certificates loads certificates from files whose private keys need a
// password, which Caddy's load_files refuses. What is decrypted stays in memory.
type Certificates []CertificateFiles

// CertificateFiles are a certificate and its key, in PEM files.
type CertificateFiles struct {
	// The file with the certificate and those that it is signed by.
	Certificate string `json:"certificate"`
	// The file with the private key.
	Key string `json:"key"`
	// The file with passwords, one a line; the first that fits opens the key.
	PasswordFile string `json:"password_file"`
	// What policies choose the certificate by.
	Tags []string `json:"tags,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Certificates) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "tls.certificates.nginx_encrypted", New: func() caddy.Module { return new(Certificates) }}
}

// LoadCertificates implements caddytls.CertificateLoader.
func (cs Certificates) LoadCertificates() ([]caddytls.Certificate, error) {
	var out []caddytls.Certificate
	for _, c := range cs {
		pair, err := keyfile.Load(c.Certificate, c.Key, c.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", c.Certificate, err)
		}
		out = append(out, caddytls.Certificate{Certificate: pair, Tags: c.Tags})
	}
	return out, nil
}

// Interface guard
var _ caddytls.CertificateLoader = Certificates(nil)
