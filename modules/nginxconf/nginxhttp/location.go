// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/access"
)

// Location is nginx's `location`: what is done with the requests whose path it
// matches. Access rules, error pages, header fields, types, logs and limits
// that are not given here are those of the location or server around it; what is
// given replaces them.
type Location struct {
	// How the path is compared: `=` the whole path, empty or `^~` its beginning
	// (`^~`: and no regular expression is tried after it), `~` and `~*` a
	// regular expression, with and without regard to case, `@` none: reached by
	// internal redirects only.
	Modifier string `json:"modifier,omitempty"`

	// The path, regular expression or, with `@`, name.
	Path string `json:"path,omitempty"`

	// Locations inside this one; they are tried once this one has matched.
	Locations []*Location `json:"locations,omitempty"`

	// Answer only internal redirects; 404 otherwise.
	Internal bool `json:"internal,omitempty"`

	// Redirect a request for the path without its last slash to the path.
	AutoRedirect bool `json:"auto_redirect,omitempty"`

	// Rules that change the request, or answer it, in order.
	Rewrite []*Step `json:"rewrite,omitempty"`

	// Who may use the location: the first rule that matches decides.
	Access []access.Rule `json:"access,omitempty"`

	// What is served instead of an error.
	ErrorPages []*ErrorPage `json:"error_pages,omitempty"`

	// Use error pages for errors of error pages, too.
	RecursiveErrorPages *bool `json:"recursive_error_pages,omitempty"`

	// Header fields added to responses.
	AddHeaders []*AddHeader `json:"add_headers,omitempty"`

	// The largest request body, in bytes; -1 is no limit. Default: 1 MiB.
	MaxBody int64 `json:"client_max_body_size,omitempty"`

	// The largest request body that $request_body has. 0: that of the block
	// around it, at the outmost none; -1: none.
	KeepBody int64 `json:"keep_body,omitempty"`

	// The type of responses that are made here, by the extension of the path
	// without a dot. Default: that of html, gif and jpg.
	Types map[string]string `json:"types,omitempty"`

	// The type of others. Default: text/plain.
	DefaultType string `json:"default_type,omitempty"`

	// Send redirects with scheme and host. Default: true.
	AbsoluteRedirect *bool `json:"absolute_redirect,omitempty"`

	// Send these with the port. Default: true.
	PortInRedirect *bool `json:"port_in_redirect,omitempty"`

	// Whose word about the client's address is believed.
	RealIP *RealIP `json:"real_ip,omitempty"`

	// How many bytes of a response are sent in a second, and how many before
	// that limit holds, with placeholders. Default: no limit.
	LimitRate      string `json:"limit_rate,omitempty"`
	LimitRateAfter string `json:"limit_rate_after,omitempty"`

	// How long a client may take nothing of the response before the connection is
	// closed. Default: write_idle_timeout of the server.
	SendTimeout caddy.Duration `json:"send_timeout,omitempty"`

	// How long a client may send nothing of the request's body before the request
	// fails. Default: read_idle_timeout of the server.
	BodyTimeout caddy.Duration `json:"client_body_timeout,omitempty"`

	// The number of requests after which a client's connection is closed, over
	// HTTP/1; a listener wrapper `nginx` with `count` has to be there. 0: that of
	// the block around it, at the outmost no limit.
	KeepaliveRequests int `json:"keepalive_requests,omitempty"`

	// How old a client's connection may be for it to take another request. As
	// above.
	KeepaliveTime caddy.Duration `json:"keepalive_time,omitempty"`

	// Where files are, for $document_root and $request_filename.
	Files *Place `json:"files,omitempty"`

	// Where requests are logged.
	AccessLogs []*AccessLog `json:"access_logs,omitempty"`

	// Do not log requests.
	NoAccessLog bool `json:"no_access_log,omitempty"`

	// What answers the request. Default: 404.
	HandlersRaw []json.RawMessage `json:"handle,omitempty" caddy:"namespace=http.handlers inline_key=handler"`

	regex   *regexp.Regexp
	rules   *access.Rules
	handler caddyhttp.Handler
}

// ErrorPage is nginx's `error_page`.
type ErrorPage struct {
	// The statuses for which it is used.
	Status []int `json:"status"`

	// Where to go: a path or `@name` for an internal redirect, else a redirect
	// of the client.
	URI string `json:"uri"`

	// The status of the response. Default: the error's; -1: that of the
	// response that is served.
	Response int `json:"response,omitempty"`
}

// AddHeader is nginx's `add_header`.
type AddHeader struct {
	Name string `json:"name"`
	// The value, with placeholders; the field is left out if it is empty.
	Value string `json:"value"`
	// Whatever the status; otherwise 200, 201, 204, 206, 301 to 304, 307 and 308.
	Always bool `json:"always,omitempty"`
}

// AccessLog is nginx's `access_log`.
type AccessLog struct {
	// The name of the logger, below http.log.access.
	Logger string `json:"logger"`
	// Log only if this is neither empty nor 0.
	If string `json:"if,omitempty"`
}

// provision compiles l and what is in it.
func (l *Location) provision(ctx caddy.Context, parent *Location) error {
	l.inherit(parent)
	if err := l.compile(); err != nil {
		return err
	}
	if err := l.RealIP.provision(); err != nil {
		return fmt.Errorf("location %q: %w", l.Path, err)
	}
	var err error
	if l.rules, err = access.New(l.Access); err != nil {
		return fmt.Errorf("location %q: access: %w", l.Path, err)
	}
	for _, s := range l.Rewrite {
		if err := s.provision(ctx, l); err != nil {
			return fmt.Errorf("location %q: rewrite: %w", l.Path, err)
		}
	}
	if err := l.loadHandlers(ctx); err != nil {
		return fmt.Errorf("location %q: %w", l.Path, err)
	}
	for _, c := range l.Locations {
		if c == nil {
			return fmt.Errorf("location %q: a location is null", l.Path)
		}
		if err := c.provision(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// compile reads the modifier.
func (l *Location) compile() (err error) {
	switch l.Modifier {
	case "", "=", "^~", "@":
	case "~":
		l.regex, err = regexp.Compile(l.Path)
	case "~*":
		l.regex, err = regexp.Compile("(?i)" + l.Path)
	default:
		err = fmt.Errorf("modifier %q: expected =, ^~, ~, ~* or @", l.Modifier)
	}
	if err != nil {
		return fmt.Errorf("location %q: %w", l.Path, err)
	}
	return nil
}

// inherit takes over what is not given in l.
func (l *Location) inherit(outer *Location) {
	if outer == nil {
		return
	}
	if l.Access == nil {
		l.Access = outer.Access
	}
	if l.ErrorPages == nil {
		l.ErrorPages = outer.ErrorPages
	}
	if l.AddHeaders == nil {
		l.AddHeaders = outer.AddHeaders
	}
	if l.Types == nil {
		l.Types = outer.Types
	}
	if l.AccessLogs == nil && !l.NoAccessLog {
		l.AccessLogs = outer.AccessLogs
	}
	l.KeepBody = cmp.Or(l.KeepBody, outer.KeepBody)
	l.MaxBody = cmp.Or(l.MaxBody, outer.MaxBody)
	l.RealIP = cmp.Or(l.RealIP, outer.RealIP)
	l.LimitRate = cmp.Or(l.LimitRate, outer.LimitRate)
	l.LimitRateAfter = cmp.Or(l.LimitRateAfter, outer.LimitRateAfter)
	l.SendTimeout = cmp.Or(l.SendTimeout, outer.SendTimeout)
	l.KeepaliveRequests = cmp.Or(l.KeepaliveRequests, outer.KeepaliveRequests)
	l.KeepaliveTime = cmp.Or(l.KeepaliveTime, outer.KeepaliveTime)
	l.BodyTimeout = cmp.Or(l.BodyTimeout, outer.BodyTimeout)
	l.DefaultType = cmp.Or(l.DefaultType, outer.DefaultType)
	l.RecursiveErrorPages = cmp.Or(l.RecursiveErrorPages, outer.RecursiveErrorPages)
	l.AbsoluteRedirect = cmp.Or(l.AbsoluteRedirect, outer.AbsoluteRedirect)
	l.PortInRedirect = cmp.Or(l.PortInRedirect, outer.PortInRedirect)
	l.Files = cmp.Or(l.Files, outer.Files)
}

func (l *Location) loadHandlers(ctx caddy.Context) error {
	l.handler = caddyhttp.HandlerFunc(notFound)
	if l.HandlersRaw == nil {
		return nil
	}
	mods, err := ctx.LoadModule(l, "HandlersRaw")
	if err != nil {
		return fmt.Errorf("handle: %w", err)
	}
	list := mods.([]any)
	for i := len(list) - 1; i >= 0; i-- {
		m, ok := list[i].(caddyhttp.MiddlewareHandler)
		if !ok {
			return fmt.Errorf("handle: %T is not a handler", list[i])
		}
		l.handler = chain{m, l.handler}
	}
	return nil
}

// choice is the result of looking for a location.
type choice struct {
	location *Location
	captures capture
	redirect string // the path to send the client to
}

// find chooses the location for a path inside l, as nginx does: the whole path,
// else the longest beginning, unless a regular expression matches and the
// longest beginning does not forbid to try.
func (l *Location) find(uri string) (choice, bool) {
	best, exact, redirect := l.prefix(uri)
	switch {
	case redirect != nil:
		return choice{location: redirect, redirect: redirect.Path}, true
	case exact:
		return choice{location: best}, true
	}
	found := choice{location: l}
	if best != nil {
		inner, final := best.find(uri)
		if final {
			return inner, true
		}
		found = inner
		if best.Modifier == "^~" {
			return found, false
		}
	}
	for _, c := range l.Locations {
		if c.regex == nil {
			continue
		}
		m := c.regex.FindStringSubmatch(uri)
		if m == nil {
			continue
		}
		inner, _ := c.find(uri)
		if inner.location == c {
			inner.captures = capture{c.regex, m}
		}
		return inner, true
	}
	return found, false
}

// prefix finds the location of the longest beginning of uri. exact: it is the
// whole path and no other location is to be tried.
func (l *Location) prefix(uri string) (best *Location, exact bool, redirect *Location) {
	for _, c := range l.Locations {
		switch c.Modifier {
		case "=":
			if c.Path == uri {
				return c, true, nil
			}
		case "", "^~":
			if strings.HasPrefix(uri, c.Path) && (best == nil || len(c.Path) > len(best.Path)) {
				best = c
			}
			if c.AutoRedirect && c.Path == uri+"/" {
				redirect = c
			}
		}
	}
	if redirect != nil {
		for _, c := range l.Locations {
			if c.Modifier == "=" && c.Path == uri {
				return c, true, nil
			}
		}
	}
	return best, false, redirect
}

// named returns the location called name, of all locations.
func (l *Location) named(name string) *Location {
	for _, c := range l.Locations {
		if c.Modifier == "@" && c.Path == name {
			return c
		}
	}
	return nil
}

// capture is a regular expression that has matched.
type capture struct {
	regex  *regexp.Regexp
	groups []string
}
