// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"maps"
	"slices"

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

	// A name for the log: the logger is then `stream.log.access.<name>`.
	Logger string `json:"logger,omitempty"`

	// Further fields, by name: texts with placeholders.
	Fields map[string]string `json:"fields,omitempty"`

	logger *zap.Logger
	names  []string // of the fields, sorted
}

// CaddyModule returns the Caddy module information.
func (AccessLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.access_log", New: func() caddy.Module { return new(AccessLog) }}
}

// Provision gets the logger.
func (l *AccessLog) Provision(ctx caddy.Context) error {
	l.logger = ctx.Logger(App{}).Named("log.access")
	l.names = slices.Sorted(maps.Keys(l.Fields))
	if l.Logger != "" {
		l.logger = l.logger.Named(l.Logger)
	}
	return nil
}

// Phase implements Handler.
func (*AccessLog) Phase() Phase { return Log }

// logged are the variables in each line that are texts, in order: a list where
// several servers were tried.
var logged = []string{
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
	fields := make([]zap.Field, 0, 8+len(logged)+len(l.Fields))
	fields = append(fields,
		zap.String("server", s.server.name),
		zap.String("remote_addr", addrText(s.client)), zap.String("remote_port", portOf(s.client)),
		zap.String("protocol", s.Protocol()), zap.Int("status", s.status),
		zap.Int64("bytes_received", s.received.Load()), zap.Int64("bytes_sent", s.sent.Load()),
		zap.Duration("session_time", s.age()))
	for _, name := range logged {
		fields = append(fields, zap.String(name, variables[name](s)))
	}
	for _, name := range l.names {
		fields = append(fields, zap.String(name, s.expand(l.Fields[name])))
	}
	c.Write(fields...)
	return nil
}

// UnmarshalCaddyfile reads:
//
//	access_log {
//	    logger <name>
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
		case option == "logger" && len(args) == 1 && l.Logger == "":
			l.Logger = args[0]
		case option == "field" && len(args) == 2:
			if _, twice := l.Fields[args[0]]; twice {
				return d.Errf("access_log: field %q given twice", args[0])
			}
			if l.Fields == nil {
				l.Fields = map[string]string{}
			}
			l.Fields[args[0]] = args[1]
		default:
			return d.Errf("access_log: unexpected %q: expected logger <name>, if <text> or field <name> <text>", option)
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
