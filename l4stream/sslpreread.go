// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/clienthello"
)

func init() { caddy.RegisterModule(SSLPreread{}) }

// SSLPreread reads the server name, the application protocols and the version
// from a TLS client's hello, without taking part in the handshake, for the
// placeholders {stream.ssl_preread_server_name},
// {stream.ssl_preread_alpn_protocols} and {stream.ssl_preread_protocol}. A
// client that does not speak TLS goes on with all three empty.
type SSLPreread struct{}

// CaddyModule returns the Caddy module information.
func (SSLPreread) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.ssl_preread", New: func() caddy.Module { return new(SSLPreread) }}
}

// Phase implements Handler.
func (*SSLPreread) Phase() Phase { return Preread }

// Handle implements Handler. Sessions of UDP are left alone.
func (*SSLPreread) Handle(s *Session) error {
	if s.udp != nil {
		return nil
	}
	return s.readHello()
}

// UnmarshalCaddyfile reads `ssl_preread`.
func (*SSLPreread) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return cfg.Bare(d, d.Val())
}

// readHello peeks until a whole ClientHello is there, or something else.
func (s *Session) readHello() error {
	if s.hello != nil {
		return nil
	}
	var parser clienthello.Parser
	limit := int(s.server.PrereadBufferSize)
	_ = s.Conn.SetReadDeadline(time.Now().Add(time.Duration(s.server.PrereadTimeout)))
	defer func() { _ = s.Conn.SetReadDeadline(time.Time{}) }()
	for {
		if len(s.preread) > 0 {
			info, verdict := parser.Feed(s.preread)
			if verdict != clienthello.NeedMore {
				s.hello = &info
				return nil
			}
		}
		switch err := s.peek(limit); {
		case err == nil:
		case errors.Is(err, io.ErrShortBuffer):
			return endWith(StatusBadRequest, "preread buffer full: no complete ClientHello in %d bytes", limit)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return endWith(StatusOK, "preread_timeout")
		default:
			return endWith(StatusOK, "the client has left before its ClientHello was complete")
		}
	}
}

// choose makes the server whose name fits the client's hello the session's. A
// PROXY header has been read by then, as the default server says; realip, set
// and the like are those of the chosen one.
func (s *Session) choose(b *servers) error {
	if err := s.readHello(); err != nil {
		return err
	}
	best := b.byName(strings.ToLower(s.hello.ServerName))
	if best == s.server {
		return nil
	}
	// What the server of the address, its default, has set is not for this one.
	s.server.sessions.remove(s)
	s.server, s.client, s.vars = best, s.peer, nil
	s.server.sessions.add(s)
	return s.phase(PostAccept)
}

// Interface guards
var (
	_ Handler               = (*SSLPreread)(nil)
	_ caddyfile.Unmarshaler = (*SSLPreread)(nil)
)
