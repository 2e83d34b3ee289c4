// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package clienttls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/crlfile"
	"github.com/caddy-upstream/caddy-upstream/internal/keyfile"
)

// Settings are those of TLS to servers: the fields of Caddy's own http
// transport, and ours.
type Settings struct {
	reverseproxy.TLSConfig

	// The file with the passwords of client_certificate_key_file, one a line; the
	// first that fits opens the key, in memory. Default: the key is not encrypted.
	ClientCertificatePasswordFile string `json:"client_certificate_password_file,omitempty"`

	// PEM files with revocation lists, one or several each. With them, every
	// certificate of a server's chain, that of the authority included, must have
	// a list of its issuer that has not expired, and must not be in it. They are
	// read when the configuration is loaded: reload it when there are new ones.
	// Default: revocation is not checked.
	CRLFiles []string `json:"crl_files,omitempty"`

	// Do not resume TLS sessions: each connection makes a whole handshake.
	// Default: sessions are resumed, each with the server that began it.
	NoSessionResumption bool `json:"no_session_resumption,omitempty"`
}

// More says which of the settings Caddy's own transports do not have, in the
// words of JSON; it is empty if none of them is there.
func (s *Settings) More() string {
	switch {
	case len(s.CRLFiles) > 0:
		return "crl_files"
	case s.ClientCertificatePasswordFile != "":
		return "client_certificate_password_file"
	case s.NoSessionResumption:
		return "no_session_resumption"
	}
	return ""
}

// New makes a client of settings.
func New(ctx caddy.Context, settings *Settings) (*Client, error) {
	caddys := settings.TLSConfig
	var pair *tls.Certificate
	if passwords := settings.ClientCertificatePasswordFile; passwords != "" {
		if caddys.ClientCertificateFile == "" || caddys.ClientCertificateKeyFile == "" {
			return nil, errors.New("client_certificate_password_file is for client_certificate_file and client_certificate_key_file, which are not both there")
		}
		loaded, err := keyfile.Load(caddys.ClientCertificateFile, caddys.ClientCertificateKeyFile, passwords)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		pair = &loaded
		caddys.ClientCertificateFile, caddys.ClientCertificateKeyFile = "", ""
	}
	config, err := caddys.MakeTLSClientConfig(ctx)
	if err != nil {
		return nil, err
	}
	c := of(&caddys, config)
	c.Config.SessionTicketsDisabled = settings.NoSessionResumption
	if pair != nil {
		c.Config.Certificates = []tls.Certificate{*pair}
	}
	if len(settings.CRLFiles) == 0 {
		return c, nil
	}
	if settings.InsecureSkipVerify {
		return nil, errors.New("crl_files beside insecure_skip_verify: without verification nothing is checked")
	}
	if c.Revoked, err = crlfile.Load(settings.CRLFiles...); err != nil {
		return nil, fmt.Errorf("crl_files: %w", err)
	}
	c.Config.VerifyConnection = func(state tls.ConnectionState) error {
		return c.Revoked.Check(state.VerifiedChains, time.Now())
	}
	return c, nil
}
