// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"io"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

func init() { caddy.RegisterModule(Return{}) }

// Return sends a text and ends the session; on UDP, one datagram.
type Return struct {
	// The text, with placeholders. An empty one only closes.
	Text string `json:"text,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Return) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.return", New: func() caddy.Module { return new(Return) }}
}

// Phase implements Handler.
func (*Return) Phase() Phase { return Content }

// returnTimeout bounds how long a client may take to read the text.
const returnTimeout = time.Minute

// Handle implements Handler.
func (h *Return) Handle(s *Session) error {
	text := s.expand(h.Text)
	if text == "" {
		return nil
	}
	if s.udp != nil {
		return s.udp.reply([]byte(text))
	}
	_ = s.Conn.SetWriteDeadline(time.Now().Add(returnTimeout))
	n, err := io.WriteString(s.Conn, text)
	s.sent.Add(int64(n))
	if err != nil {
		return endWith(StatusOK, "sending the text: %w", err)
	}
	return nil
}

// UnmarshalCaddyfile reads `return <text>`.
func (h *Return) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("return: got %d arguments, expected one text", len(args))
	}
	h.Text = args[0]
	return cfg.NoBlock(d, "return")
}

// Interface guards
var (
	_ Handler               = (*Return)(nil)
	_ caddyfile.Unmarshaler = (*Return)(nil)
)
