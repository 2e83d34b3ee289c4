// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

func init() { httpcaddyfile.RegisterGlobalOption("stream", parseStream) }

// parseStream reads the global option:
//
//	stream {
//	    shutdown_timeout <duration>
//	    server <listen...> {
//	        server_name <name...>
//	        <handler> ...
//	    }
//	}
func parseStream(d *caddyfile.Dispenser, existing any) (any, error) {
	app := &App{Servers: map[string]*Server{}}
	if existing != nil {
		if err := json.Unmarshal(existing.(httpcaddyfile.App).Value, app); err != nil {
			return nil, err
		}
	}
	d.Next()
	if d.NextArg() {
		return nil, d.Errf("stream: unexpected argument %q: expected a block of servers", d.Val())
	}
	places := map[string]*binding{} // to find addresses that two servers want
	options := cfg.Options{
		"shutdown_timeout": cfg.Duration(&app.ShutdownTimeout),
		"server": func(d *caddyfile.Dispenser) error {
			s := new(Server)
			app.Servers[fmt.Sprintf("srv%d", len(app.Servers))] = s
			if err := s.unmarshal(d); err != nil {
				return err
			}
			for _, a := range s.addresses {
				if places[a.key()] == nil {
					places[a.key()] = &binding{address: a}
				}
				if err := places[a.key()].add(s); err != nil {
					return d.Errf("server %s: %v", strings.Join(s.Listen, " "), err)
				}
			}
			return nil
		},
	}
	if err := options.Block(d, "stream", cfg.Repeatable{"server": true}); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "stream", Value: caddyconfig.JSON(app, nil)}, nil
}

func (s *Server) unmarshalNames(d *caddyfile.Dispenser) error {
	if err := cfg.Strings(&s.ServerName)(d); err != nil {
		return err
	}
	if err := s.readNames(); err != nil {
		return d.Err(err.Error())
	}
	return nil
}

// unmarshal reads one server; the dispenser stands on the word server.
func (s *Server) unmarshal(d *caddyfile.Dispenser) error {
	if s.Listen = d.RemainingArgs(); len(s.Listen) == 0 {
		return d.Err("server: expected one or more addresses to listen on")
	}
	if err := s.readAddresses(); err != nil {
		return d.Errf("server: %v", err)
	}
	rules := new(Access)
	content := ""
	var mods []any
	handler := func(name string, mod any) {
		s.HandlersRaw = append(s.HandlersRaw, caddyconfig.JSONModuleObject(mod, "handler", name, nil))
	}
	options := cfg.Options{
		"server_name":         s.unmarshalNames,
		"preread_buffer_size": cfg.Size(&s.PrereadBufferSize, 1),
		"max_udp_sessions":    cfg.Int(&s.MaxUDPSessions, 0),
		"preread_timeout":     cfg.Duration(&s.PrereadTimeout),
		"allow":               rules.unmarshalRule,
		"deny":                rules.unmarshalRule,
	}
	many := cfg.Repeatable{"allow": true, "deny": true, "set": true, "map": true, "geo": true, "split_clients": true, "limit_conn": true, "access_log": true}
	for _, info := range caddy.GetModules("stream.handlers") {
		name := info.ID.Name()
		if name == "access" {
			continue // allow and deny
		}
		options[name] = func(d *caddyfile.Dispenser) error {
			mod, err := caddyfile.UnmarshalModule(d, "stream.handlers."+name)
			if err != nil {
				return err
			}
			if h, ok := mod.(Handler); ok && h.Phase() == Content {
				if content != "" {
					return d.Errf("%s beside %s: expected one of proxy_pass, return and pass", name, content)
				}
				content = name
			}
			mods = append(mods, mod)
			handler(name, mod)
			return nil
		}
	}
	if err := options.Block(d, "server "+strings.Join(s.Listen, " "), many); err != nil {
		return err
	}
	if len(rules.Rules) > 0 {
		handler("access", rules)
	}
	for _, mod := range mods {
		if checker, ok := mod.(protocolChecker); ok {
			if err := checker.checkProtocols(s.listens()); err != nil {
				return d.Errf("server %s: %v", strings.Join(s.Listen, " "), err)
			}
		}
	}
	if content == "" {
		return d.Errf("server %s: expected one of proxy_pass, return and pass", strings.Join(s.Listen, " "))
	}
	return nil
}
