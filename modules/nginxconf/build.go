// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/access"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// buildLocation makes the location of a scope and of those inside it.
func (a *adapter) buildLocation(s *scope) (*nginxhttp.Location, error) {
	l, err := a.settings(s, s.values["location"].(*nginxhttp.Location))
	if err != nil {
		return nil, err
	}
	return l, a.buildInner(s, l)
}

func (a *adapter) buildInner(s *scope, l *nginxhttp.Location) error {
	for _, in := range s.inner {
		c, err := a.buildLocation(in)
		if err != nil {
			return err
		}
		l.Locations = append(l.Locations, c)
	}
	return nil
}

// given is s with what is around it as far as the JSON has no place for it: a
// server has what stands in http, all others only what is written in them.
func given(s *scope) *scope {
	if s.kind == inServer {
		return s
	}
	return onlyOwn(s)
}

// settings fills l with what is given in s.
func (a *adapter) settings(s *scope, l *nginxhttp.Location) (*nginxhttp.Location, error) {
	var err error
	g := given(s)
	l.Internal, _ = own[bool](s, "internal")
	l.Access = list[access.Rule](g, "access")
	l.ErrorPages = list[*nginxhttp.ErrorPage](g, "error_page")
	l.RecursiveErrorPages = givenFlag(g, "recursive_error_pages", false)
	l.AddHeaders = list[*nginxhttp.AddHeader](g, "add_header")
	l.Types = value(g, "types", map[string]string(nil))
	l.DefaultType = value(g, "default_type", "")
	l.AbsoluteRedirect = givenFlag(g, "absolute_redirect", true)
	l.PortInRedirect = givenFlag(g, "port_in_redirect", true)
	if l.MaxBody = value(g, "client_max_body_size", int64(-1)); l.MaxBody == 0 {
		l.MaxBody = -1
	} else if l.MaxBody == -1 {
		l.MaxBody = 0
	}
	l.LimitRate = template(value(g, "limit_rate", ""), nil)
	l.LimitRateAfter = template(value(g, "limit_rate_after", ""), nil)
	for name, to := range map[string]*caddy.Duration{"send_timeout": &l.SendTimeout, "client_body_timeout": &l.BodyTimeout} {
		if t, ok := own[time.Duration](s, name); ok && s.kind != inServer { // that of the server is its default's
			if t <= 0 {
				return nil, s.at.errorf("%s: it must be positive", name)
			}
			*to = caddy.Duration(t)
		}
	}
	a.limitClients(g, l)
	if l.RealIP, err = a.realIP(s); err != nil {
		return nil, err
	}
	if l.AccessLogs, l.NoAccessLog, err = a.accessLogs(g); err != nil {
		return nil, err
	}
	if a.usesAny([]string{"document_root", "realpath_root", "request_filename"}) {
		place, err := a.place(s)
		if err != nil {
			return nil, err
		}
		l.Files = &place
	}
	if a.usesAny([]string{"request_body"}) {
		l.KeepBody = keptBody(s)
	}
	if l.Rewrite, err = a.buildSteps(s.steps); err != nil {
		return nil, err
	}
	return l, a.content(s, l)
}

// content sets what answers the requests of a location.
func (a *adapter) content(s *scope, l *nginxhttp.Location) error {
	if answers(s.steps) {
		return nil
	}
	p := passOf(s)
	if p == nil && s.kind == inIf {
		p = passOf(s.parent)
	}
	if err := a.tryFiles(s, l); err != nil {
		return err
	}
	if p != nil {
		return a.proxy(s, l, p)
	}
	place, err := a.place(s)
	if err != nil {
		return err
	}
	st := &nginxhttp.Static{Place: place}
	if index := value(s, "index", []string(nil)); index != nil && !slices.Equal(index, []string{"index.html"}) {
		for _, n := range index {
			st.Index = append(st.Index, template(n, nil))
		}
	}
	l.HandlersRaw = append(l.HandlersRaw, handler("nginx_static", st))
	return nil
}

// passOf is the proxy_pass or grpc_pass that stands in s.
func passOf(s *scope) *proxyPass {
	if p, ok := own[*proxyPass](s, "grpc_pass"); ok {
		return p
	}
	p, _ := own[*proxyPass](s, "proxy_pass")
	return p
}

func (a *adapter) tryFiles(s *scope, l *nginxhttp.Location) error {
	words, ok := own[[]string](s, "try_files")
	if !ok && s.kind == inIf {
		return nil // as in nginx, an if block loses it
	}
	if !ok {
		return nil
	}
	place, err := a.place(s)
	if err != nil {
		return err
	}
	t := &nginxhttp.TryFiles{Place: place, Else: template(words[len(words)-1], nil)}
	for _, w := range words[:len(words)-1] {
		t.Files = append(t.Files, template(w, nil))
	}
	if err := t.Validate(); err != nil {
		return s.at.errorf("%v", err)
	}
	l.HandlersRaw = append(l.HandlersRaw, handler("nginx_try_files", t))
	return nil
}

// place is where the files of a scope are: alias in it, or root.
func (a *adapter) place(s *scope) (nginxhttp.Place, error) {
	loc := s
	if s.kind == inIf {
		loc = s.parent
	}
	if alias, ok := own[string](loc, "alias"); ok {
		l := loc.values["location"].(*nginxhttp.Location)
		switch {
		case l.Modifier == "@":
			return nginxhttp.Place{}, s.at.errorf("alias cannot be used in a named location")
		case strings.HasPrefix(l.Modifier, "~"):
			if _, tries := own[[]string](loc, "try_files"); tries {
				return nginxhttp.Place{}, s.at.errorf("try_files beside alias in a location of a regular expression is not translated: use root")
			}
			return nginxhttp.Place{Root: template(a.path(alias), nil), Whole: true}, nil
		}
		return nginxhttp.Place{Root: template(a.path(alias), nil), Alias: l.Path}, nil
	}
	return nginxhttp.Place{Root: template(a.path(value(s, "root", "html")), nil)}, nil
}

// givenFlag is a switch that is given; def in a server is not worth a word.
func givenFlag(s *scope, name string, def bool) *bool {
	for g := s; g != nil; g = g.parent {
		if v, ok := g.values[name]; ok {
			on := v.(bool)
			if on == def && s.kind == inServer {
				return nil
			}
			return &on
		}
	}
	return nil
}

func handler(name string, v any) json.RawMessage {
	return caddyconfig.JSONModuleObject(v, "handler", name, nil)
}

const zeroTime = time.Duration(0)

func duration(s *scope, name string) caddy.Duration {
	return caddy.Duration(value(s, name, zeroTime))
}
