// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"
)

func init() { caddy.RegisterModule(AccessLog{}) }

// AccessLog writes one line for each session, when it has ended, with the
// values of nginx's variables. The logger is `stream.log.access`, with the
// name of the server behind it.
type AccessLog struct {
	// Write a line only if this text, with placeholders replaced, is neither
	// empty nor 0.
	If string `json:"if,omitempty"`

	// Further fields, by name: texts with placeholders.
	Fields map[string]string `json:"fields,omitempty"`

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (AccessLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.access_log", New: func() caddy.Module { return new(AccessLog) }}
}

// Provision gets the logger.
func (l *AccessLog) Provision(ctx caddy.Context) error {
	l.logger = ctx.Logger(App{}).Named("log.access")
	return nil
}

// Phase implements Handler.
func (*AccessLog) Phase() Phase { return Log }

// logged are the variables in each line, in order.
var logged = []string{
	"remote_addr", "remote_port", "protocol", "status", "bytes_received", "bytes_sent", "session_time",
	"upstream_addr", "upstream_bytes_sent", "upstream_bytes_received",
	"upstream_connect_time", "upstream_first_byte_time", "upstream_session_time",
}

// Handle implements Handler.
func (l *AccessLog) Handle(s *Session) error {
	if l.If != "" {
		if v := s.expand(l.If); v == "" || v == "0" {
			return nil
		}
	}
	c := l.logger.Check(zap.InfoLevel, "session")
	if c == nil {
		return nil
	}
	fields := make([]zap.Field, 0, 1+len(logged)+len(l.Fields))
	fields = append(fields, zap.String("server", s.server.name))
	for _, name := range logged {
		fields = append(fields, zap.String(name, variables[name](s)))
	}
	for name, text := range l.Fields {
		fields = append(fields, zap.String(name, s.expand(text)))
	}
	c.Write(fields...)
	return nil
}

// UnmarshalCaddyfile reads:
//
//	access_log {
//	    if <text>
//	    field <name> <text>
//	}
func (l *AccessLog) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("access_log: unexpected argument %q: where logs go is set by Caddy's log option, for the logger stream.log.access", d.Val())
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch option, args := d.Val(), d.RemainingArgs(); {
		case option == "if" && len(args) == 1 && l.If == "":
			l.If = args[0]
		case option == "field" && len(args) == 2:
			if l.Fields == nil {
				l.Fields = map[string]string{}
			}
			l.Fields[args[0]] = args[1]
		default:
			return d.Errf("access_log: unexpected %q: expected if <text> or field <name> <text>", option)
		}
	}
	return nil
}

// Interface guards
var (
	_ Handler               = (*AccessLog)(nil)
	_ caddy.Provisioner     = (*AccessLog)(nil)
	_ caddyfile.Unmarshaler = (*AccessLog)(nil)
)
