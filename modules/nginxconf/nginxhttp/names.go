// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() { caddy.RegisterModule(Host{}) }

// Host matches requests by the name they ask for, as nginx's `server_name`
// does: without regard to case, port and a dot at the end, which Caddy's matcher
// `host` counts as part of the name.
type Host struct {
	// The names: whole ones, `*.example.org`, `www.*`, `~` with a regular
	// expression, whose groups become variables of nginx_server; the first that
	// matches. An empty name is that of requests without one.
	Names []string `json:"names"`

	names serverNames
}

// CaddyModule returns the Caddy module information.
func (Host) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.matchers.nginx_host", New: func() caddy.Module { return new(Host) }}
}

// Provision compiles the regular expressions.
func (m *Host) Provision(caddy.Context) (err error) {
	m.names, err = newServerNames(m.Names)
	return err
}

// MatchWithError implements caddyhttp.RequestMatcherWithError.
func (m *Host) MatchWithError(r *http.Request) (bool, error) {
	c, ok := m.names.match(requestHost(r))
	if ok && c.regex != nil {
		caddyhttp.SetVar(r.Context(), nameVar, c)
	}
	return ok, nil
}

// nameVar has the groups of the name that has matched.
const nameVar = "nginx.server_name"

// serverNames are names of a server, in the order in which they are tried.
type serverNames []serverName

type serverName struct {
	text          string
	before, after bool // anything may stand there
	expr          *regexp.Regexp
}

func newServerNames(texts []string) (serverNames, error) {
	var out serverNames
	for _, text := range texts {
		n := serverName{text: strings.ToLower(text)}
		var err error
		expr, isExpr := strings.CutPrefix(text, "~")
		switch {
		case isExpr:
			n.expr, err = regexp.Compile("(?i)" + expr)
		case strings.HasPrefix(text, "*."):
			n.text, n.before = n.text[1:], true
		case strings.HasSuffix(text, ".*"):
			n.text, n.after = n.text[:len(text)-1], true
		}
		if err != nil {
			return nil, fmt.Errorf("name %q: %w", text, err)
		}
		out = append(out, n)
	}
	return out, nil
}

// match finds the first name that is that of a host, with its groups.
func (s serverNames) match(host string) (capture, bool) {
	for _, n := range s {
		switch {
		case n.expr != nil:
			if m := n.expr.FindStringSubmatch(host); m != nil {
				return capture{n.expr, m}, true
			}
		case n.before && len(host) > len(n.text) && strings.HasSuffix(host, n.text),
			n.after && len(host) > len(n.text) && strings.HasPrefix(host, n.text) && host[len(n.text)] != '.',
			!n.before && !n.after && n.text == host:
			return capture{}, true
		}
	}
	return capture{}, false
}

// requestHost is the name that a request asks for, in lower case, without the
// port and a dot at the end.
func requestHost(r *http.Request) string {
	h := strings.ToLower(r.Host)
	if strings.HasPrefix(h, "[") {
		if end := strings.IndexByte(h, ']'); end > 0 {
			return h[:end+1]
		}
	}
	if i := strings.LastIndexByte(h, ':'); i >= 0 {
		h = h[:i]
	}
	return strings.TrimSuffix(h, ".")
}

// Interface guards
var (
	_ caddy.Provisioner                 = (*Host)(nil)
	_ caddyhttp.RequestMatcherWithError = (*Host)(nil)
)
