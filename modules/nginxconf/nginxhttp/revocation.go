// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/crlfile"
)

func init() { caddy.RegisterModule(new(Revocation)) }

// Revocation refuses the certificates of clients that revocation lists name. It
// goes with modes that verify certificates.
type Revocation struct {
	// PEM files with lists, one or several each. Every certificate of a client's
	// chain, that of the authority included, must have a list of its issuer that
	// has not expired, and must not be in it. They are read when the
	// configuration is loaded.
	Files []string `json:"files"`

	lists *crlfile.Lists
}

// CaddyModule returns the Caddy module information.
func (*Revocation) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "tls.client_auth.verifier.nginx_crl", New: func() caddy.Module { return new(Revocation) }}
}

// Provision reads the lists.
func (r *Revocation) Provision(caddy.Context) (err error) {
	if len(r.Files) == 0 {
		return errors.New("nginx_crl: no files")
	}
	if r.lists, err = crlfile.Load(r.Files...); err != nil {
		return fmt.Errorf("nginx_crl: %w", err)
	}
	return nil
}

// UnmarshalCaddyfile reads `verifier nginx_crl <file...>`.
func (r *Revocation) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if r.Files = d.RemainingArgs(); len(r.Files) == 0 {
		return d.Err("nginx_crl: expected one or more files with revocation lists")
	}
	return cfg.NoBlock(d, "nginx_crl")
}

// VerifyClientCertificate implements caddytls.ClientCertificateVerifier.
func (r *Revocation) VerifyClientCertificate(_ [][]byte, chains [][]*x509.Certificate) error {
	return r.lists.Check(chains, time.Now())
}

// Interface guards
var (
	_ caddy.Provisioner                  = (*Revocation)(nil)
	_ caddytls.ClientCertificateVerifier = (*Revocation)(nil)
	_ caddyfile.Unmarshaler              = (*Revocation)(nil)
)
