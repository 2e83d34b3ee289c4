// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package sticky

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	caddy.RegisterModule(Cookie{})
	caddy.RegisterModule(Route{})
	caddy.RegisterModule(Learn{})
}

// Cookie binds a client to the server that answered its first request, by a
// cookie, as nginx's `sticky cookie`. The cookie holds the server's route, or a
// digest of its address.
type Cookie struct {
	// The name of the cookie.
	Name string `json:"name"`

	// How long the browser keeps the cookie; `87600h` is nginx's `max`. Default:
	// until it is closed.
	Expires *caddy.Duration `json:"expires,omitempty"`

	// The cookie's domain, with placeholders. Default: none.
	Domain string `json:"domain,omitempty"`

	// The cookie's path. Default: none.
	Path string `json:"path,omitempty"`

	// Keep scripts from reading the cookie.
	HTTPOnly bool `json:"httponly,omitempty"`

	// Have the browser send the cookie over TLS only.
	Secure bool `json:"secure,omitempty"`

	// `strict`, `lax` or `none`, or placeholders; what is none of them then
	// becomes strict. Default: none is sent.
	SameSite string `json:"samesite,omitempty"`

	// The key of the digests (HMAC-SHA-256), with placeholders of the environment:
	// nobody can guess addresses from cookies then. Default: nginx's digests, MD5
	// without a key. Servers with a route are named by it in any case.
	Secret string `json:"secret,omitempty"`

	attributes Attributes
	secret     string
}

// CaddyModule returns the Caddy module information.
func (Cookie) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.sticky.cookie", New: func() caddy.Module { return new(Cookie) }}
}

// Provision checks the attributes.
func (c *Cookie) Provision(caddy.Context) error {
	switch {
	case c.Name == "":
		return errors.New("sticky cookie: name is missing")
	case !validName(c.Name):
		return fmt.Errorf("sticky cookie: name %q: expected letters, digits and none of the separators of HTTP", c.Name)
	case c.Expires != nil && *c.Expires < 0:
		return fmt.Errorf("sticky cookie: expires %s: must not be negative", time.Duration(*c.Expires))
	case !strings.Contains(c.SameSite, "{") && c.SameSite != "" && !ValidSameSite(c.SameSite):
		return fmt.Errorf("sticky cookie: samesite %q: expected strict, lax or none", c.SameSite)
	case !validValue(c.Path):
		return fmt.Errorf("sticky cookie: path %q: must not have control characters or semicolons", c.Path)
	case !validValue(c.Domain):
		return fmt.Errorf("sticky cookie: domain %q: must not have control characters or semicolons", c.Domain)
	}
	c.secret = caddy.NewReplacer().ReplaceKnown(c.Secret, "")
	if c.Secret != "" && c.secret == "" {
		return errors.New("sticky cookie: secret is a placeholder without a value")
	}
	c.attributes = Attributes{Name: c.Name, Path: c.Path, HTTPOnly: c.HTTPOnly, Secure: c.Secure}
	if c.Expires != nil {
		d := time.Duration(*c.Expires)
		c.attributes.Expires = &d
	}
	return nil
}

// Bind implements upstream.Sticky.
func (c *Cookie) Bind(exchange.Store) *upstream.Affinity {
	return &upstream.Affinity{Hint: c.hint, Cookie: c.cookie, Secret: c.secret}
}

func (c *Cookie) hint(r *http.Request) string {
	if cookie, err := r.Cookie(c.Name); err == nil {
		return cookie.Value
	}
	return ""
}

func (c *Cookie) cookie(r *http.Request, sid string) string {
	domain := expand(r, c.Domain)
	if !validValue(domain) {
		domain = ""
	}
	return c.attributes.Header(sid, domain, SameSite(expand(r, c.SameSite)), time.Now())
}

// Route binds a request to the server whose `route` it names, as nginx's
// `sticky route`.
type Route struct {
	// Where the name of the route is looked for, in order: texts with
	// placeholders. The first that is not empty counts.
	Values []string `json:"values"`
}

// CaddyModule returns the Caddy module information.
func (Route) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.sticky.route", New: func() caddy.Module { return new(Route) }}
}

// Validate checks that there is something to look for.
func (x *Route) Validate() error { return placeholders("sticky route: values", x.Values) }

// Bind implements upstream.Sticky.
func (x *Route) Bind(exchange.Store) *upstream.Affinity {
	return &upstream.Affinity{Hint: func(r *http.Request) string { return first(r, x.Values) }}
}

// Learn binds a client to the server that began its session: it remembers the
// ids of sessions that servers hand out, as nginx's `sticky learn`.
type Learn struct {
	// Where a server's response has the id of a new session, in order: texts with
	// placeholders, such as {http.upstream.cookie.session}.
	Create []string `json:"create"`

	// Where a request has the id of its session, in order: texts with
	// placeholders, such as {http.request.cookie.session}.
	Lookup []string `json:"lookup"`

	// The name of the table of sessions. It is kept over reloads while the group
	// and the name stay the same.
	Zone string `json:"zone"`

	// The size of the table in bytes, at 256 for each session: 1 MiB has room for
	// 4096. Then the session that was not used for longest is forgotten.
	ZoneSize int64 `json:"zone_size"`

	// How long a session is remembered after its last use. Default: 10m.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Learn as soon as the header of a response has arrived, and not at its end.
	Header bool `json:"header,omitempty"`

	limit   int
	timeout time.Duration
	table   *Table
}

const (
	sessionSize    = 256
	defaultTimeout = 10 * time.Minute

	// MinZoneSize is the smallest table of `sticky learn`, in bytes; nginx's.
	MinZoneSize = 8 * 4096
)

// CaddyModule returns the Caddy module information.
func (Learn) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.sticky.learn", New: func() caddy.Module { return new(Learn) }}
}

// Provision checks the table's bounds.
func (x *Learn) Provision(caddy.Context) error {
	if err := placeholders("sticky learn: create", x.Create); err != nil {
		return err
	}
	if err := placeholders("sticky learn: lookup", x.Lookup); err != nil {
		return err
	}
	switch {
	case x.Zone == "":
		return errors.New("sticky learn: zone is missing: expected the name of a table of sessions")
	case x.ZoneSize < MinZoneSize:
		return fmt.Errorf("sticky learn: zone_size %d: must be at least %d bytes", x.ZoneSize, MinZoneSize)
	case x.Timeout < 0:
		return fmt.Errorf("sticky learn: timeout %s: must not be negative", time.Duration(x.Timeout))
	}
	x.limit = int(x.ZoneSize / sessionSize)
	x.timeout = cmp.Or(time.Duration(x.Timeout), defaultTimeout)
	return nil
}

// kept is a table among a group's shared state.
type kept struct{ *Table }

func (kept) Close() error { return nil }

// Bind implements upstream.Sticky. The bounds of a table that is there already
// change with the first request.
func (x *Learn) Bind(store exchange.Store) *upstream.Affinity {
	x.table = store.Shared("sticky.learn/"+x.Zone, func() io.Closer { return kept{NewTable(x.limit, x.timeout)} }).(kept).Table
	var resize sync.Once
	hint := func(r *http.Request) string {
		resize.Do(func() { x.table.Resize(x.limit, x.timeout, time.Now()) })
		return x.hint(r)
	}
	return &upstream.Affinity{Hint: hint, Learn: x.learn, AtHeader: x.Header, Zone: x.Zone}
}

func (x *Learn) hint(r *http.Request) string {
	id := first(r, x.Lookup)
	if id == "" {
		return ""
	}
	sid, _ := x.table.Lookup(id, time.Now())
	return sid
}

// learn fixes the session's id while the response is at hand.
func (x *Learn) learn(r *http.Request) func(sid string) {
	id, create := first(r, x.Create), true
	if id == "" {
		id, create = first(r, x.Lookup), false
	}
	if id == "" {
		return nil
	}
	return func(sid string) { x.table.Learn(id, sid, create, time.Now()) }
}

// first returns the first of the values that is not empty for r.
func first(r *http.Request, values []string) string {
	for _, v := range values {
		if text := expand(r, v); text != "" {
			return text
		}
	}
	return ""
}

func expand(r *http.Request, text string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return ""
	}
	return repl.ReplaceAll(text, "")
}

func placeholders(what string, values []string) error {
	if len(values) == 0 {
		return fmt.Errorf("%s: is missing: expected texts with placeholders", what)
	}
	for _, v := range values {
		if !strings.Contains(v, "{") {
			return fmt.Errorf("%s: %q is the same for all requests: expected a placeholder such as {http.request.cookie.name}", what, v)
		}
	}
	return nil
}

func validName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", s[i]) >= 0 {
			return false
		}
	}
	return true
}

func validValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f || s[i] == ';' {
			return false
		}
	}
	return true
}

// Interface guards
var (
	_ upstream.Sticky       = (*Cookie)(nil)
	_ upstream.Sticky       = (*Route)(nil)
	_ upstream.Sticky       = (*Learn)(nil)
	_ caddy.Provisioner     = (*Cookie)(nil)
	_ caddy.Validator       = (*Route)(nil)
	_ caddy.Provisioner     = (*Learn)(nil)
	_ caddyfile.Unmarshaler = (*Cookie)(nil)
	_ caddyfile.Unmarshaler = (*Route)(nil)
	_ caddyfile.Unmarshaler = (*Learn)(nil)
)
