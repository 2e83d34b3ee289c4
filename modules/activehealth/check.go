// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
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
	// Host is the name in the configuration, for TLS.
	Host string
}

// target returns where a check of the peer at address goes. line is the
// server's text in the configuration.
func (s *Settings) target(address, line string) target {
	t := target{Network: "tcp", Address: address, Host: hostOf(line)}
	if path, ok := strings.CutPrefix(address, "unix/"); ok {
		t = target{Network: "unix", Address: path, Host: "localhost"}
	}
	switch {
	case s.Address != "":
		t = target{Network: "tcp", Address: s.Address, Host: hostOf(s.Address)}
	case s.Port != 0 && t.Network == "tcp":
		host, _, err := net.SplitHostPort(address)
		if err == nil {
			t.Address = net.JoinHostPort(host, strconv.Itoa(s.Port))
		}
	}
	return t
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// host is the Host header for t.
func (t target) host() string {
	if t.Network == "unix" {
		return "localhost"
	}
	return t.Address
}

// dial connects to t, with TLS if config is set.
func dial(ctx context.Context, t target, config *tls.Config) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, t.Network, t.Address)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", reason(err))
	}
	conn = bind(ctx, conn)
	if config == nil {
		return conn, nil
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = t.Host
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tls handshake: %w", plain(err))
	}
	return secure, nil
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
