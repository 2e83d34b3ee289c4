// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
)

// manner is how a check talks to servers: as its own settings say, or, where
// they say nothing, as the handlers of its group do. Handlers that differ leave
// it to the configuration to say which is meant; they are not guessed among.
type manner struct {
	client *clienttls.Client // nil: without TLS
	use    tlsUse
	told   bool // by a handler, which client is of
}

// tlsUse is what a check has to do with TLS.
type tlsUse int

const (
	tlsFollows tlsUse = iota // it does what handlers do
	tlsAlways                // the same, but those without TLS are of no interest
	tlsOwn                   // its own settings say it all
)

// tlsIf is what a check does that has no settings of TLS.
func tlsIf(follows bool) tlsUse {
	if follows {
		return tlsFollows
	}
	return tlsOwn
}

// settleTLS takes the check's own settings, nil if there are none; then use
// says what is done.
func (m *manner) settleTLS(ctx caddy.Context, own *clienttls.Settings, use tlsUse) (err error) {
	m.use = use
	switch {
	case own != nil:
		m.use = tlsOwn
	case use == tlsAlways: // until a handler says more
		own = new(clienttls.Settings)
	default:
		return nil
	}
	if m.client, err = clienttls.New(ctx, own); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	return nil
}

// FollowTLS implements upstream.TLSFollower.
func (m *manner) FollowTLS(c *clienttls.Client) error {
	if m.use == tlsOwn || m.use == tlsAlways && c == nil {
		return nil
	}
	c, ok := c.Settled()
	switch {
	case !ok:
		return fmt.Errorf("a handler has placeholders in the name of its servers, %s, and a check has no request to replace them with: "+
			"say tls_server_name= in the check", c.Config.ServerName)
	case !m.told:
		m.client, m.told = c, true
		return nil
	}
	if what := clienttls.Difference(m.client, c); what != "" {
		return fmt.Errorf("it does what the handlers of the group do, and they %s: say in the check what it is to do, "+
			"with tls_off, or with tls, tls_server_name=, tls_trusted_ca_certs= and others", what)
	}
	return nil
}

// ServerTLS implements upstream.TLSFollower.
func (m *manner) ServerTLS() *clienttls.Client { return m.client }

// offOrOn refuses settings of TLS beside its absence.
func offOrOn(off bool, own *clienttls.Settings) error {
	if off && own != nil {
		return errors.New("tls_off beside other settings of TLS: expected one of them")
	}
	return nil
}
