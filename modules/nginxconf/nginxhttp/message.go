// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Message is what proxy_pass and grpc_pass make of requests and responses.
type Message struct {
	// The path of proxy_pass. Default: the request line as it came.
	URI string `json:"uri,omitempty"`

	// The beginning of the request's path that `uri` stands for. Without it `uri`
	// is the whole target of the request.
	Replaces string `json:"replaces,omitempty"`

	// The Host of requests, with placeholders.
	Host string `json:"host"`

	// Header fields that replace those of the client, in order; one with an
	// empty value is not sent.
	SetHeaders []Field `json:"set_headers,omitempty"`

	// Do not send the client's own header fields.
	DropHeaders bool `json:"drop_headers,omitempty"`

	// Do not send the client's body, nor its length.
	DropBody bool `json:"drop_body,omitempty"`

	// The method, instead of the client's.
	Method string `json:"method,omitempty"`

	// Header fields of responses that the client does not get, in addition to
	// Date, Server, X-Pad and X-Accel-*.
	HideHeaders []string `json:"hide_headers,omitempty"`

	// Header fields of those that the client does get.
	PassHeaders []string `json:"pass_headers,omitempty"`

	// Header fields of responses that are not acted upon: X-Accel-Redirect,
	// X-Accel-Limit-Rate.
	IgnoreHeaders []string `json:"ignore_headers,omitempty"`

	// How Location and Refresh of responses are changed; the first that fits.
	Redirects []*Redirect `json:"redirects,omitempty"`

	// How the cookies that servers set are changed.
	Cookies *Cookies `json:"cookies,omitempty"`

	// How many bytes of a response are read in a second, with placeholders.
	// Default: no limit.
	LimitRate string `json:"limit_rate,omitempty"`
}

// Field is a header field.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Redirect is nginx's `proxy_redirect`.
type Redirect struct {
	// The beginning of the address, or a regular expression after ~ or ~*.
	From string `json:"from"`
	// What stands there instead, with placeholders.
	To string `json:"to"`

	regex *regexp.Regexp
}

// provision compiles the regular expressions.
func (t *Message) provision() error {
	for _, r := range t.Redirects {
		var err error
		if r.regex, err = afterTilde(r.From); err != nil {
			return fmt.Errorf("redirects: %w", err)
		}
	}
	return t.Cookies.provision()
}

// request is the request for the proxied server.
func (t *Message) request(req *http.Request) *http.Request {
	st := stateOf(req.Context())
	if st == nil {
		return req
	}
	st.proxied = true
	out := *req
	out.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: t.target(st)}
	if t.Method != "" {
		out.Method = st.expand(t.Method)
	}
	if t.DropBody {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		out.Body, out.ContentLength, out.Trailer = http.NoBody, 0, nil
	}
	out.Header = make(http.Header, len(st.r.Header)+len(t.SetHeaders))
	if !t.DropHeaders {
		for name, values := range st.r.Header {
			switch name {
			case "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Expect", "Upgrade", "Content-Length":
			default:
				out.Header[name] = values
			}
		}
	}
	out.Host = st.expand(t.Host)
	for _, f := range t.SetHeaders {
		deleteFold(out.Header, f.Name)
	}
	for _, f := range t.SetHeaders {
		v := st.expand(f.Value)
		switch {
		case v == "" && (f.Name != "User-Agent" || f.Value == ""):
		case http.CanonicalHeaderKey(f.Name) == "Connection" || http.CanonicalHeaderKey(f.Name) == "Upgrade":
			name := http.CanonicalHeaderKey(f.Name)
			out.Header[name] = append(out.Header[name], v)
		default:
			out.Header[f.Name] = append(out.Header[f.Name], v)
		}
	}
	if !httpguts.HeaderValuesContainsToken(out.Header["Connection"], "upgrade") {
		delete(out.Header, "Upgrade")
	}
	return &out
}

func deleteFold(h http.Header, name string) {
	delete(h, http.CanonicalHeaderKey(name))
	for k := range h {
		if strings.EqualFold(k, name) {
			delete(h, k)
		}
	}
}

// target is the target of the request line.
func (t *Message) target(st *state) string {
	uri := ""
	if t.URI != "" {
		uri = escapeSpaces(st.expand(t.URI))
	}
	switch {
	case t.URI != "" && t.Replaces == "":
		if uri == "" || uri[0] == '?' {
			return "/" + uri
		}
		return uri
	case t.URI == "" && st.unparsed:
		if strings.HasPrefix(st.requestURI, "?") {
			return "/" + st.requestURI
		}
		return st.requestURI
	}
	path := st.uri
	if t.URI != "" && st.validLocation {
		path = strings.TrimPrefix(path, t.Replaces)
	} else {
		uri = ""
	}
	if st.quoted || st.internal {
		path = escapeURI(path)
	}
	uri += path
	if st.args != "" {
		uri += "?" + st.args
	}
	return uri
}

// upstreamResponse is what is remembered of a proxied server's response.
type upstreamResponse struct{ header http.Header }

// hidden are header fields of proxied servers that clients do not get.
var hidden = []string{
	"Date", "Server", "X-Pad", "X-Accel-Expires", "X-Accel-Limit-Rate", "X-Accel-Buffering", "X-Accel-Charset",
}

// response changes a response for the client.
func (t *Message) response(req *http.Request, res *http.Response) {
	st := stateOf(req.Context())
	if st == nil {
		return
	}
	st.upstream = &upstreamResponse{header: res.Header.Clone()}
	if v := res.Header.Get("X-Accel-Limit-Rate"); v != "" && !t.ignores("X-Accel-Limit-Rate") {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
			st.accelRate = &n
		}
	}
	for _, name := range hidden {
		if !slices.ContainsFunc(t.PassHeaders, func(p string) bool { return strings.EqualFold(p, name) }) {
			delete(res.Header, name)
		}
	}
	for _, name := range t.HideHeaders {
		deleteFold(res.Header, name)
	}
	if t.ignores("X-Accel-Redirect") {
		delete(res.Header, "X-Accel-Redirect")
	}
	if t.Cookies != nil {
		for i, line := range res.Header["Set-Cookie"] {
			res.Header["Set-Cookie"][i] = t.Cookies.rewrite(st, line)
		}
	}
	if rate := size(st.expand(t.LimitRate)); rate > 0 && res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &pacedBody{ReadCloser: res.Body, ctx: req.Context(), pace: pace{rate: rate, start: st.start}}
	}
	if v := res.Header["Location"]; len(v) > 0 {
		res.Header["Location"] = []string{t.redirect(st, v[0])}
	}
	if v := res.Header["Refresh"]; len(v) > 0 {
		if i := strings.Index(strings.ToLower(v[0]), "url="); i >= 0 {
			res.Header["Refresh"] = []string{v[0][:i+4] + t.redirect(st, v[0][i+4:])}
		}
	}
}

// ignores reports whether a header field of responses is not acted upon.
func (t *Message) ignores(name string) bool {
	return slices.ContainsFunc(t.IgnoreHeaders, func(p string) bool { return strings.EqualFold(p, name) })
}

// redirect applies the first rule that fits an address.
func (t *Message) redirect(st *state, to string) string {
	for _, r := range t.Redirects {
		if r.regex != nil {
			if out, ok := st.substitute(r.regex, to, r.To); ok {
				return st.absoluteURL(out)
			}
			continue
		}
		if from := st.expand(r.From); strings.HasPrefix(to, from) {
			return st.absoluteURL(st.expand(r.To) + to[len(from):])
		}
	}
	return to
}

// substitute is the text to, which may name the groups of re, if re matches s.
func (st *state) substitute(re *regexp.Regexp, s, to string) (string, bool) {
	m := re.FindStringSubmatch(s)
	if m == nil {
		return "", false
	}
	before := st.captures
	defer func() { st.captures = before }()
	st.captures = capture{re, m}
	return st.expand(to), true
}
