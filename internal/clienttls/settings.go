// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package clienttls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
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

	// The lowest and the highest version of TLS: tls1.2 or tls1.3. Default: both
	// are offered.
	ProtocolMin string `json:"protocol_min,omitempty"`
	ProtocolMax string `json:"protocol_max,omitempty"`
}

// New makes a client of settings.
func New(ctx caddy.Context, settings *Settings) (*Client, error) {
	if err := settings.checkPorts(); err != nil {
		return nil, fmt.Errorf("except_ports: %w", err)
	}
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
	if err := settings.versions(c.Config); err != nil {
		return nil, err
	}
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

// ParseProtocols parses the arguments <min> [<max>] of an option.
func (s *Settings) ParseProtocols(d *caddyfile.Dispenser) error {
	option := d.Val()
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return d.Errf("%s: got %d arguments, expected <min> [<max>], each tls1.2 or tls1.3", option, len(args))
	}
	for _, v := range args {
		if _, ok := caddytls.SupportedProtocols[v]; !ok {
			return d.Errf("%s: unknown version %q, expected tls1.2 or tls1.3", option, v)
		}
	}
	s.ProtocolMin = args[0]
	if len(args) == 2 {
		s.ProtocolMax = args[1]
		if s.ProtocolMin > s.ProtocolMax {
			return d.Errf("%s: %s is higher than %s", option, args[0], args[1])
		}
	}
	return nil
}

// ParseCurves parses the arguments <curve...> of an option.
func (s *Settings) ParseCurves(d *caddyfile.Dispenser) error {
	option := d.Val()
	if err := cfg.Strings(&s.Curves)(d); err != nil {
		return err
	}
	for _, curve := range s.Curves {
		if _, ok := caddytls.SupportedCurves[curve]; !ok {
			known := slices.Sorted(maps.Keys(caddytls.SupportedCurves))
			return d.Errf("%s: unknown curve %q, expected %s", option, curve, strings.Join(known, ", "))
		}
	}
	return nil
}

// ParseExceptPorts parses the arguments <port...> of an option.
func (s *Settings) ParseExceptPorts(d *caddyfile.Dispenser) error {
	option := d.Val()
	if err := cfg.Strings(&s.ExceptPorts)(d); err != nil {
		return err
	}
	if err := s.checkPorts(); err != nil {
		return d.Errf("%s: %v", option, err)
	}
	return nil
}

// checkPorts finds what is no port, and so would never be that of a server.
func (s *Settings) checkPorts() error {
	for _, port := range s.ExceptPorts {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return fmt.Errorf("port %q: expected a number from 1 to 65535", port)
		}
	}
	return nil
}

// versions sets the versions of TLS.
func (s *Settings) versions(config *tls.Config) error {
	for _, v := range []struct {
		field, name string
		to          *uint16
	}{{"protocol_min", s.ProtocolMin, &config.MinVersion}, {"protocol_max", s.ProtocolMax, &config.MaxVersion}} {
		if v.name == "" {
			continue
		}
		version, ok := caddytls.SupportedProtocols[v.name]
		if !ok {
			return fmt.Errorf("%s %q: expected tls1.2 or tls1.3", v.field, v.name)
		}
		*v.to = version
	}
	if config.MaxVersion != 0 && config.MinVersion > config.MaxVersion {
		return fmt.Errorf("protocol_min %s is higher than protocol_max %s", s.ProtocolMin, s.ProtocolMax)
	}
	return nil
}
