// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"net"
	"slices"
	"strings"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// redirects translates proxy_redirect and its default.
func (a *adapter) redirects(s *scope, l *nginxhttp.Location, p *proxyPass) ([]*nginxhttp.Redirect, error) {
	rules := list[[]string](s, "proxy_redirect")
	if rules == nil {
		if hasVariables(p.host + p.uri) {
			return nil, nil
		}
		rules = [][]string{{"default"}}
	}
	var out []*nginxhttp.Redirect
	for _, r := range rules {
		switch {
		case len(r) == 2:
			out = append(out, &nginxhttp.Redirect{From: redirectFrom(r[0]), To: template(r[1], nil)})
		case r[0] == "off":
			return nil, nil
		case hasVariables(p.host + p.uri):
			return nil, p.at.errorf("proxy_redirect default cannot be used with a proxy_pass that has variables")
		default:
			scheme := "http://"
			if p.https {
				scheme = "https://"
			}
			from, to := scheme+p.host+p.uri, l.Path
			if !p.hasURI {
				from, to = from+"/", "/"
			}
			out = append(out, &nginxhttp.Redirect{From: literal(from), To: literal(to)})
		}
	}
	return out, nil
}

func redirectFrom(s string) string {
	if strings.HasPrefix(s, "~") {
		return s
	}
	return template(s, nil)
}

func readRedirect(a *adapter, d *dir) (any, error) {
	switch {
	case len(d.args) == 1 && (d.args[0] == "off" || d.args[0] == "default"):
	case len(d.args) == 1:
		return nil, d.errorf("invalid parameter %q: expected off, default or two texts", d.args[0])
	case strings.HasPrefix(d.args[0], "~"):
		if err := a.regex(d, strings.TrimPrefix(d.args[0][1:], "*")); err != nil {
			return nil, err
		}
		a.uses(d, d.args[1])
	default:
		a.uses(d, d.args[0])
		a.uses(d, d.args[1])
	}
	return d.args, nil
}

func readClientProtocols(a *adapter, d *dir) (any, error) {
	if _, err := readProtocols(a, d); err != nil {
		return nil, err
	}
	older := slices.ContainsFunc(d.args, func(w string) bool { return w != "TLSv1.2" && w != "TLSv1.3" })
	switch {
	case !slices.Contains(d.args, "TLSv1.2") && !slices.Contains(d.args, "TLSv1.3"):
		return nil, d.errorf("only TLSv1.2 and TLSv1.3 are there")
	case older:
		a.warn(d, "only TLS 1.2 and 1.3 are offered")
	}
	return d.args, nil
}

var conditionNames = map[string]bool{
	"error": true, "timeout": true, "invalid_header": true, "http_500": true, "http_502": true, "http_503": true,
	"http_504": true, "http_403": true, "http_404": true, "http_429": true, "non_idempotent": true, "off": true,
}

func readConditions(a *adapter, d *dir) (any, error) {
	for _, w := range d.args {
		switch {
		case w == "updating":
			return nil, d.errorf("updating is not translated: there is no cache")
		case !conditionNames[w]:
			return nil, d.errorf("invalid value %q", w)
		case w == "off":
			return []string{"off"}, nil
		}
	}
	return d.args, nil
}

func readBind(a *adapter, d *dir) (any, error) {
	switch {
	case len(d.args) == 2:
		return nil, d.errorf("the parameter %q is not translated", d.args[1])
	case d.args[0] == "off":
		return "", nil
	case hasVariables(d.args[0]):
		return nil, d.errorf("an address with variables is not translated: write the address")
	}
	if net.ParseIP(strings.Trim(d.args[0], "[]")) == nil {
		if host, _, err := hostPort(d.args[0], 1); err != nil || net.ParseIP(host) == nil {
			return nil, d.errorf("invalid address %q", d.args[0])
		}
	}
	return d.args[0], nil
}
