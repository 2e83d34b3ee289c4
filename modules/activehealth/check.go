// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// checker asks a server whether it is well.
type checker interface {
	// check returns nil if the server is well, and what is wrong, in words, if
	// it is not. It ends with ctx.
	check(ctx context.Context, t target) error
}

// target is a server as a check sees it.
type target struct {
	// Network and Address are what is dialled.
	Network, Address string
	// Host is the name in the configuration, AddressHost that of the address, for
	// TLS.
	Host, AddressHost string
}

// target returns where a check of the peer at address goes. line is the
// server's text in the configuration.
func (s *Settings) target(address, line string) target {
	if s.Address != "" {
		host := upstream.HostOf(s.Address)
		return target{Network: "tcp", Address: s.Address, Host: host, AddressHost: host}
	}
	if path, ok := strings.CutPrefix(address, "unix/"); ok {
		return target{Network: "unix", Address: path, Host: "localhost", AddressHost: "localhost"}
	}
	t := target{Network: "tcp", Address: address, Host: upstream.HostOf(line), AddressHost: upstream.HostOf(address)}
	if s.Port != 0 {
		t.Address = net.JoinHostPort(t.AddressHost, strconv.Itoa(s.Port))
	}
	return t
}

// host is the Host header for t.
func (t target) host() string {
	if t.Network == "unix" {
		return "localhost"
	}
	return t.Address
}

// dial connects to t, with TLS if client says so.
func dial(ctx context.Context, t target, client *clienttls.Client, protocols ...string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, t.Network, t.Address)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", reason(err))
	}
	conn = bind(ctx, conn)
	if !t.secure(client) {
		return conn, nil
	}
	config := client.For(t.Host, t.AddressHost)
	if len(protocols) > 0 {
		config.NextProtos = protocols
	}
	secure := tls.Client(conn, config)
	if client.HandshakeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, client.HandshakeTimeout)
		defer cancel()
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tls handshake: %w", plain(err))
	}
	return secure, nil
}

// secure reports whether t is asked over TLS.
func (t target) secure(client *clienttls.Client) bool {
	if client == nil {
		return false
	}
	_, port, err := net.SplitHostPort(t.Address)
	return err != nil || t.Network == "unix" || !slices.Contains(client.ExceptPorts, port)
}

// bound is a connection whose reads and writes end with a context.
type bound struct {
	net.Conn
	stop func() bool
}

func bind(ctx context.Context, conn net.Conn) net.Conn {
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	return &bound{conn, context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })}
}

func (b *bound) Close() error {
	b.stop()
	return b.Conn.Close()
}

// reason strips the address from a dial error: it stands beside it anyway.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && !op.Timeout() {
		return op.Err
	}
	return plain(err)
}
