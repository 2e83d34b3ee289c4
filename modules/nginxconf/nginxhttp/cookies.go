// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"regexp"
	"strings"
)

// Cookies is how the cookies that proxied servers set are changed: nginx's
// `proxy_cookie_domain`, `proxy_cookie_path` and `proxy_cookie_flags`. Of each
// list the first rule that fits counts.
type Cookies struct {
	// What becomes of the attribute Domain.
	Domains []*CookieRule `json:"domains,omitempty"`
	// What becomes of the attribute Path.
	Paths []*CookieRule `json:"paths,omitempty"`
	// What becomes of Secure, HttpOnly and SameSite.
	Flags []*CookieFlags `json:"flags,omitempty"`
}

// CookieRule replaces the value of an attribute.
type CookieRule struct {
	// The whole domain, a dot before it aside, or the beginning of the path; or
	// a regular expression after ~ (and, of a path, ~* without regard to case).
	From string `json:"from"`
	// What stands there instead, with placeholders.
	To string `json:"to"`

	regex *regexp.Regexp
}

// CookieFlags changes the flags of some cookies.
type CookieFlags struct {
	// The name of the cookie, or a regular expression after ~.
	Cookie string `json:"cookie"`
	// `secure`, `httponly`, `samesite=strict`, `samesite=lax`, `samesite=none`, and
	// `nosecure`, `nohttponly` and `nosamesite`, or placeholders that become one of
	// them or empty.
	Flags []string `json:"flags"`

	regex *regexp.Regexp
}

// cookieFlags are what a flag does to an attribute: the text that it is then,
// empty if it is taken out.
var cookieFlags = map[string]struct{ name, attribute string }{
	"secure": {"Secure", "Secure"}, "nosecure": {"Secure", ""},
	"httponly": {"HttpOnly", "HttpOnly"}, "nohttponly": {"HttpOnly", ""},
	"samesite=strict": {"SameSite", "SameSite=Strict"}, "samesite=lax": {"SameSite", "SameSite=Lax"},
	"samesite=none": {"SameSite", "SameSite=None"}, "nosamesite": {"SameSite", ""},
}

// ValidCookieFlag reports whether there is such a flag.
func ValidCookieFlag(flag string) bool {
	_, ok := cookieFlags[strings.ToLower(flag)]
	return ok
}

func (c *Cookies) provision() error {
	if c == nil {
		return nil
	}
	var err error
	for _, r := range c.Domains {
		if expr, ok := strings.CutPrefix(r.From, "~"); ok {
			if r.regex, err = regexp.Compile("(?i)" + expr); err != nil {
				return fmt.Errorf("cookies: domains: %w", err)
			}
		}
	}
	for _, r := range c.Paths {
		if r.regex, err = afterTilde(r.From); err != nil {
			return fmt.Errorf("cookies: paths: %w", err)
		}
	}
	for _, f := range c.Flags {
		if expr, ok := strings.CutPrefix(f.Cookie, "~"); ok {
			if f.regex, err = regexp.Compile("(?i)" + expr); err != nil {
				return fmt.Errorf("cookies: flags: %w", err)
			}
		}
	}
	return nil
}

// afterTilde compiles what stands after ~ or ~*; nil if s begins with neither.
func afterTilde(s string) (*regexp.Regexp, error) {
	expr, ok := strings.CutPrefix(s, "~")
	if !ok {
		return nil, nil
	}
	if rest, fold := strings.CutPrefix(expr, "*"); fold {
		expr = "(?i)" + rest
	}
	return regexp.Compile(expr)
}

// rewrite changes a Set-Cookie line.
func (c *Cookies) rewrite(st *state, line string) string {
	parts := strings.Split(line, ";")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	changed := false
	for i, p := range parts[1:] {
		name, v, _ := strings.Cut(p, "=")
		to, ok := "", false
		switch strings.ToLower(name) {
		case "domain":
			to, ok = firstRule(c.Domains, st, v, wholeDomain)
		case "path":
			to, ok = firstRule(c.Paths, st, v, pathPrefix)
		}
		if ok {
			parts[i+1], changed = name+"="+to, true
		}
	}
	if name, _, _ := strings.Cut(parts[0], "="); c.Flags != nil {
		for _, f := range c.Flags {
			if f.fits(st, name) {
				parts, changed = f.apply(st, parts), true
				break
			}
		}
	}
	if !changed {
		return line
	}
	return strings.Join(parts, "; ")
}

// firstRule replaces v by the first rule that fits; literal does so for those
// without a regular expression.
func firstRule(rules []*CookieRule, st *state, v string, literal func(from, to, v string) (string, bool)) (string, bool) {
	for _, r := range rules {
		if r.regex != nil {
			if out, ok := st.substitute(r.regex, v, r.To); ok {
				return out, true
			}
			continue
		}
		if out, ok := literal(st.expand(r.From), st.expand(r.To), v); ok {
			return out, true
		}
	}
	return "", false
}

func wholeDomain(from, to, v string) (string, bool) {
	bare := strings.TrimPrefix(v, ".")
	if !strings.EqualFold(bare, strings.TrimPrefix(from, ".")) {
		return "", false
	}
	return v[:len(v)-len(bare)] + strings.TrimPrefix(to, "."), true
}

func pathPrefix(from, to, v string) (string, bool) {
	rest, ok := strings.CutPrefix(v, from)
	return to + rest, ok
}

func (f *CookieFlags) fits(st *state, name string) bool {
	if f.regex == nil {
		return strings.EqualFold(st.expand(f.Cookie), name)
	}
	m := f.regex.FindStringSubmatch(name)
	if m != nil {
		st.matched(capture{f.regex, m})
	}
	return m != nil
}

// apply changes attributes where they stand, and adds what is missing at the end
// in nginx's order.
func (f *CookieFlags) apply(st *state, parts []string) []string {
	want, found := map[string]string{}, map[string]bool{}
	for _, flag := range f.Flags {
		if does, ok := cookieFlags[strings.ToLower(st.expand(flag))]; ok {
			want[does.name] = does.attribute
		}
	}
	out := parts[:1:1]
	for _, p := range parts[1:] {
		name, _, _ := strings.Cut(p, "=")
		for kind, attribute := range want {
			if !strings.EqualFold(name, kind) {
				continue
			}
			found[kind] = true
			if attribute == "" || kind == "SameSite" { // the others stay as they are written
				p = attribute
			}
		}
		if p != "" {
			out = append(out, p)
		}
	}
	for _, kind := range []string{"Secure", "HttpOnly", "SameSite"} {
		if want[kind] != "" && !found[kind] {
			out = append(out, want[kind])
		}
	}
	return out
}
