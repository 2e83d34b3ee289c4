// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"strings"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// readCookieRule reads proxy_cookie_domain and proxy_cookie_path; nil is off.
func readCookieRule(a *adapter, d *dir) (any, error) {
	if len(d.args) == 1 {
		if d.args[0] != "off" {
			return nil, d.errorf("invalid parameter %q: expected off, or two texts", d.args[0])
		}
		return (*nginxhttp.CookieRule)(nil), nil
	}
	r := &nginxhttp.CookieRule{From: redirectFrom(d.args[0]), To: template(d.args[1], nil)}
	a.uses(d, d.args[1])
	expr, regex := strings.CutPrefix(d.args[0], "~")
	if !regex {
		a.uses(d, d.args[0])
		return r, nil
	}
	return r, a.regex(d, strings.TrimPrefix(expr, "*"))
}

// readCookieFlags reads proxy_cookie_flags; nil is off.
func readCookieFlags(a *adapter, d *dir) (any, error) {
	if len(d.args) == 1 {
		if d.args[0] != "off" {
			return nil, d.errorf("invalid parameter %q: expected off, or a cookie and flags", d.args[0])
		}
		return (*nginxhttp.CookieFlags)(nil), nil
	}
	f := &nginxhttp.CookieFlags{Cookie: redirectFrom(d.args[0])}
	if expr, regex := strings.CutPrefix(d.args[0], "~"); regex {
		if err := a.regex(d, expr); err != nil {
			return nil, err
		}
	} else {
		a.uses(d, d.args[0])
	}
	for _, flag := range d.args[1:] {
		if !hasVariables(flag) && !nginxhttp.ValidCookieFlag(flag) {
			return nil, d.errorf("invalid parameter %q: expected secure, httponly, samesite=strict|lax|none or one of them after no", flag)
		}
		a.uses(d, flag)
		f.Flags = append(f.Flags, template(flag, nil))
	}
	return f, nil
}

// cookies is how the cookies of servers are changed; off among the rules
// switches them off.
func cookies(s *scope) *nginxhttp.Cookies {
	c := &nginxhttp.Cookies{
		Domains: rules[nginxhttp.CookieRule](s, "proxy_cookie_domain"),
		Paths:   rules[nginxhttp.CookieRule](s, "proxy_cookie_path"),
		Flags:   rules[nginxhttp.CookieFlags](s, "proxy_cookie_flags"),
	}
	if c.Domains == nil && c.Paths == nil && c.Flags == nil {
		return nil
	}
	return c
}

func rules[T any](s *scope, name string) []*T {
	out := list[*T](s, name)
	for _, r := range out {
		if r == nil {
			return nil
		}
	}
	return out
}
