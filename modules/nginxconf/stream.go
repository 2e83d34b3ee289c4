// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/access"
	"github.com/caddy-upstream/caddy-upstream/l4stream"
)

// inStreamAll is where most directives of stream may stand.
const inStreamAll = inStream | inStreamServer

// streamServer is a server block of stream.
type streamServer struct {
	scope     *scope
	at        *dir
	listens   []streamListen
	isDefault bool
	sets      []json.RawMessage
	content   *dir
}

// streamListen is one address of a server.
type streamListen struct {
	address string
	streamMode
}

// streamMode is what has to be the same for addresses to share handlers.
type streamMode struct{ ssl, proxy bool }

func (a *adapter) stream(s *scope, d *dir) error {
	if a.streamScope != nil {
		return d.errorf("it is duplicate")
	}
	a.streamScope = newScope(s, inStream, d)
	a.walk(a.streamScope, d.block)
	return nil
}

func (a *adapter) streamServer(s *scope, d *dir) error {
	in := newScope(s, inStreamServer, d)
	v := &streamServer{scope: in, at: d}
	in.values["server"] = v
	a.walk(in, d.block)
	switch {
	case len(v.listens) == 0:
		return d.errorf("no listen in the server block")
	case v.content == nil:
		return d.errorf("no proxy_pass, return or pass in the server block")
	}
	a.streams = append(a.streams, v)
	return nil
}

func (a *adapter) streamListen(s *scope, d *dir) error {
	v := s.values["server"].(*streamServer)
	var l streamListen
	udp, ipv6only := false, true
	for _, p := range d.args[1:] {
		name, val, _ := strings.Cut(p, "=")
		switch {
		case p == "udp":
			udp = true
		case p == "ssl":
			l.ssl = true
		case p == "proxy_protocol":
			l.proxy = true
		case p == "default_server":
			v.isDefault = true
		case name == "ipv6only":
			ipv6only = val != "off"
		case listenMoot[name]:
			a.warn(d, "%s: %s", name, sockets)
		default:
			return d.errorf("invalid parameter %q", p)
		}
	}
	if !hasPort(d.args[0]) && strings.Trim(d.args[0], "0123456789") != "" {
		return d.errorf("no port in %q", d.args[0])
	}
	address, _, err := listenAddress(d.args[0], ipv6only)
	switch {
	case err != nil:
		return d.errorf("%v", err)
	case udp && strings.HasPrefix(address, "tcp"):
		address = "udp" + address[3:]
	case udp:
		address = "udp/" + address
	}
	l.address = address
	v.listens = append(v.listens, l)
	return nil
}

// readStreamNames checks names of servers, which are those of the stream app.
func readStreamNames(a *adapter, d *dir) (any, error) {
	for _, n := range d.args {
		expr, regex := strings.CutPrefix(n, "~")
		if !regex {
			continue
		}
		if err := a.regex(d, expr); err != nil {
			return nil, err
		}
		if re := regexp.MustCompile(expr); strings.Join(re.SubexpNames(), "") != "" {
			return nil, d.errorf("named groups in %q are not translated: use map with $ssl_preread_server_name", n)
		}
	}
	return d.args, nil
}

func (a *adapter) streamContent(s *scope, d *dir) error {
	a.streamTemplate(d, d.args[0])
	s.values["server"].(*streamServer).content = d // the last one counts
	return nil
}

func (a *adapter) streamSet(s *scope, d *dir) error {
	name, ok := strings.CutPrefix(d.args[0], "$")
	if !ok || !nameOnly(name) {
		return d.errorf("invalid variable name %q: expected $name", d.args[0])
	}
	name = strings.ToLower(name)
	a.known["stream."+name] = true
	a.noteValues("stream."+name, []string{d.args[1]})
	v := s.values["server"].(*streamServer)
	v.sets = append(v.sets, handler("set", l4stream.Set{Name: name, Value: a.streamTemplate(d, d.args[1])}))
	return nil
}

// streamApp makes the stream app.
func (a *adapter) streamApp() (*l4stream.App, error) {
	app := &l4stream.App{Servers: map[string]*l4stream.Server{}}
	var order []*streamServer // the default of an address first
	for _, def := range []bool{true, false} {
		for _, v := range a.streams {
			if v.isDefault == def {
				order = append(order, v)
			}
		}
	}
	for _, v := range order {
		byMode := map[streamMode]*l4stream.Server{}
		for _, l := range v.listens {
			c := byMode[l.streamMode]
			if c == nil {
				c = &l4stream.Server{}
				if err := a.buildStream(v, l.streamMode, c); err != nil {
					return nil, err
				}
				byMode[l.streamMode] = c
				app.Servers[fmt.Sprintf("stream%03d", len(app.Servers))] = c
			}
			c.Listen = append(c.Listen, l.address)
		}
	}
	return app, nil
}

// buildStream makes the server for the addresses of one mode.
func (a *adapter) buildStream(v *streamServer, mode streamMode, c *l4stream.Server) error {
	s := v.scope
	if names, _ := own[[]string](s, "server_name"); slices.ContainsFunc(names, func(n string) bool { return n != "" }) {
		c.ServerName = names
	}
	c.PrereadBufferSize = value(s, "preread_buffer_size", int64(0))
	c.PrereadTimeout = duration(s, "preread_timeout")
	var handlers []json.RawMessage
	if mode.proxy {
		handlers = append(handlers, handler("proxy_protocol", l4stream.ProxyProtocol{Require: true, Timeout: duration(s, "proxy_protocol_timeout")}))
	}
	from, err := trusted(s)
	if err != nil {
		return v.at.errorf("set_real_ip_from: %v", err)
	}
	if from != nil {
		for i, f := range from {
			from[i] = strings.TrimSuffix(f, ":")
			if f != "unix:" {
				from[i] = f
			}
		}
		handlers = append(handlers, handler("realip", l4stream.RealIP{From: from}))
	}
	handlers = append(handlers, v.sets...)
	for _, l := range list[[]string](s, "limit_conn") {
		h, err := a.limitConn(v, l)
		if err != nil {
			return err
		}
		handlers = append(handlers, h)
	}
	if rules := list[access.Rule](s, "access"); rules != nil {
		handlers = append(handlers, handler("access", l4stream.Access{Rules: rules}))
	}
	if mode.ssl {
		h, err := a.streamTLS(v)
		if err != nil {
			return err
		}
		handlers = append(handlers, h)
	}
	if value(s, "ssl_preread", false) {
		handlers = append(handlers, handler("ssl_preread", l4stream.SSLPreread{}))
	}
	content, err := a.streamHandler(v)
	if err != nil {
		return err
	}
	handlers = append(handlers, content)
	logs, err := a.streamLogs(v)
	if err != nil {
		return err
	}
	c.HandlersRaw = a.withVariables(append(handlers, logs...))
	return nil
}

// withVariables puts the variables that are used before the handlers.
func (a *adapter) withVariables(handlers []json.RawMessage) []json.RawMessage {
	used := map[string]bool{}
	var text strings.Builder
	for _, h := range handlers {
		text.Write(h)
	}
	for again := true; again; {
		again = false
		for name, h := range a.streamVariables {
			if !used[name] && strings.Contains(text.String(), "{stream.vars."+name+"}") {
				used[name], again = true, true
				text.Write(h)
			}
		}
	}
	var out []json.RawMessage
	for _, name := range a.streamOrder {
		if used[name] {
			out = append(out, a.streamVariables[name])
		}
	}
	return append(out, handlers...)
}

func (a *adapter) streamZone(_ *scope, d *dir) error {
	zone, ok := strings.CutPrefix(d.args[1], "zone=")
	zone, _, _ = strings.Cut(zone, ":")
	if !ok || zone == "" {
		return d.errorf("invalid parameter %q: expected zone=name:size", d.args[1])
	}
	a.streamZones[zone] = a.streamTemplate(d, d.args[0])
	return nil
}

func (a *adapter) limitConn(v *streamServer, words []string) (json.RawMessage, error) {
	key, ok := a.streamZones[words[0]]
	if !ok {
		return nil, v.at.errorf("limit_conn: unknown zone %q", words[0])
	}
	h := l4stream.LimitConn{Key: key, Zone: words[0], DryRun: value(v.scope, "limit_conn_dry_run", false)}
	if err := number(words[1], 1, func(n int) { h.Limit = n }); err != nil {
		return nil, v.at.errorf("limit_conn: invalid number %q", words[1])
	}
	return handler("limit_conn", h), nil
}
