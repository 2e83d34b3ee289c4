// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// framing says how a request's body is delimited.
type framing uint8

const (
	noBody framing = iota
	fixedLength
	chunked
)

// refusal is why a request cannot be sent, and the client's answer.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

func refuse(format string, args ...any) *refusal {
	return &refusal{http.StatusInternalServerError, fmt.Errorf(format, args...)}
}

var (
	errConnect  = &refusal{http.StatusMethodNotAllowed, errors.New("CONNECT is not for a reverse proxy")}
	errNoLength = &refusal{http.StatusLengthRequired, errors.New("http_version 1.0 cannot send a body of unknown length")}
	errUpgrade  = refuse("the Upgrade header has no protocol that can be asked for")
)

// plan is what has been decided about a request before it is sent.
type plan struct {
	framing framing
	upgrade bool // a switch of protocols is asked for
}

// options are the parts of the configuration that show in a request's head.
type options struct {
	http10 bool
	// close asks the server to close: the connection will not be reused.
	close bool
}

// appendHead appends the request line and the header, or refuses: nobody after
// us looks for requests that are two.
func appendHead(b []byte, req *http.Request, fallbackHost string, o options) ([]byte, plan, *refusal) {
	var p plan
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	if method == http.MethodConnect {
		return b, p, errConnect
	}
	if !isToken(method) {
		return b, p, refuse("invalid method %q", method)
	}
	p.framing = bodyFraming(req)
	if o.http10 && p.framing == chunked {
		return b, p, errNoLength
	}
	var r *refusal
	b = append(append(b, method...), ' ')
	if b, r = appendTarget(b, method, req.URL); r != nil {
		return b, p, r
	}
	if o.http10 {
		b = append(b, " HTTP/1.0\r\nHost: "...)
	} else {
		b = append(b, " HTTP/1.1\r\nHost: "...)
	}
	if b, r = appendHost(b, req, fallbackHost); r != nil {
		return b, p, r
	}
	if b, r = appendFraming(b, method, req, p.framing); r != nil {
		return b, p, r
	}
	if b, p.upgrade, r = appendConnection(b, req, o); r != nil {
		return b, p, r
	}
	if b, r = appendFields(b, req.Header); r != nil {
		return b, p, r
	}
	return append(b, "\r\n"...), p, nil
}

// bodyFraming follows net/http: a length of 0 with a body means "unknown".
func bodyFraming(req *http.Request) framing {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return noBody
	case req.ContentLength > 0:
		return fixedLength
	default:
		return chunked
	}
}

func appendTarget(b []byte, method string, u *url.URL) ([]byte, *refusal) {
	if u == nil {
		return b, refuse("no URL")
	}
	path := u.Opaque
	if path == "" {
		path = u.EscapedPath()
	}
	switch {
	case path == "":
		path = "/"
	case path[0] == '/':
	case path == "*" && method == http.MethodOptions:
	default:
		return b, refuse("target %q is not a path", path)
	}
	if !isTarget(path) || !isTarget(u.RawQuery) {
		return b, refuse("control character or space in target %q", path+"?"+u.RawQuery)
	}
	b = append(b, path...)
	if u.ForceQuery || u.RawQuery != "" {
		b = append(append(b, '?'), u.RawQuery...)
	}
	return b, nil
}

func appendHost(b []byte, req *http.Request, fallback string) ([]byte, *refusal) {
	host := req.Host
	if host == "" {
		host = fallback
	}
	host, err := httpguts.PunycodeHostPort(host)
	if err != nil || !httpguts.ValidHostHeader(host) {
		return b, refuse("invalid host %q", host)
	}
	return append(append(b, withoutZone(host)...), "\r\n"...), nil
}

// withoutZone drops the zone of an IPv6 address: it means nothing elsewhere.
func withoutZone(host string) string {
	if !strings.HasPrefix(host, "[") {
		return host
	}
	end := strings.IndexByte(host, ']')
	if end < 0 {
		return host
	}
	if zone := strings.IndexByte(host[:end], '%'); zone >= 0 {
		return host[:zone] + host[end:]
	}
	return host
}

func appendFraming(b []byte, method string, req *http.Request, f framing) ([]byte, *refusal) {
	switch f {
	case fixedLength:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, req.ContentLength, 10)
		b = append(b, "\r\n"...)
	case chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		return appendAnnouncement(b, req.Trailer)
	default:
		switch method {
		case http.MethodPost, http.MethodPut, http.MethodPatch:
			b = append(b, "Content-Length: 0\r\n"...)
		}
	}
	return b, nil
}

// appendAnnouncement names the trailer fields that are known beforehand.
func appendAnnouncement(b []byte, trailer http.Header) ([]byte, *refusal) {
	sep := "Trailer: "
	for name := range trailer {
		if !isToken(name) || !httpguts.ValidTrailerHeader(http.CanonicalHeaderKey(name)) {
			return b, refuse("invalid trailer name %q", name)
		}
		b = append(append(b, sep...), name...)
		sep = ", "
	}
	if len(trailer) > 0 {
		b = append(b, "\r\n"...)
	}
	return b, nil
}

// appendConnection writes Connection and Upgrade. Caddy leaves both in the map
// exactly when a switch of protocols is wanted.
func appendConnection(b []byte, req *http.Request, o options) (_ []byte, upgrade bool, _ *refusal) {
	if up := req.Header["Upgrade"]; len(up) > 0 && !o.http10 &&
		httpguts.HeaderValuesContainsToken(req.Header["Connection"], "upgrade") {
		if len(up) != 1 || !isFieldValue(up[0]) || strings.Trim(up[0], " \t") == "" {
			return b, false, errUpgrade
		}
		if !httpguts.HeaderValuesContainsToken(up, "h2c") {
			b = append(b, "Connection: Upgrade\r\nUpgrade: "...)
			b = append(append(b, up[0]...), "\r\n"...)
			return b, true, nil
		}
	}
	if (o.close || req.Close) && !o.http10 {
		b = append(b, "Connection: close\r\n"...)
	}
	return b, false, nil
}

// special are the header fields that are not simply copied, by their lengths:
// most names are told from all of them by that.
var special = func() (byLength [32][]string) {
	for _, name := range append(notCopied, "Te", "User-Agent") {
		byLength[len(name)] = append(byLength[len(name)], name)
	}
	return byLength
}()

// notCopied are header fields that only this package writes.
var notCopied = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Trailer",
	"Connection", "Upgrade", "Keep-Alive", "Proxy-Connection", "Expect",
	"Http2-Settings",
}

// specialName returns the canonical form of a name that is a token and special,
// "" for any other.
func specialName(name string) string {
	if len(name) >= len(special) {
		return ""
	}
	for _, s := range special[len(name)] {
		if strings.EqualFold(s, name) {
			return s
		}
	}
	return ""
}

func appendFields(b []byte, h http.Header) ([]byte, *refusal) {
	for name, values := range h {
		if !isToken(name) {
			return b, refuse("invalid header name %q", name)
		}
		switch specialName(name) {
		case "":
		case "Te":
			values = acceptedTE(values)
		case "User-Agent":
			if len(values) > 0 && values[0] == "" {
				continue
			}
		default: // notCopied
			continue
		}
		for _, v := range values {
			if !isFieldValue(v) {
				return b, refuse("line break or control character in the value of header %q", name)
			}
			b = append(append(b, name...), ": "...)
			b = append(append(b, v...), "\r\n"...)
		}
	}
	return b, nil
}

// acceptedTE keeps the only transfer coding that survives a proxy.
func acceptedTE(values []string) []string {
	if httpguts.HeaderValuesContainsToken(values, "trailers") {
		return []string{"trailers"}
	}
	return nil
}

// appendTrailer appends the end of a chunked body. The fields may have been
// filled in by the body's last Read.
func appendTrailer(b []byte, h http.Header) ([]byte, *refusal) {
	b = append(b, "0\r\n"...)
	for name, values := range h {
		if len(values) == 0 {
			continue
		}
		if !isToken(name) || !httpguts.ValidTrailerHeader(http.CanonicalHeaderKey(name)) {
			return b, refuse("invalid trailer name %q", name)
		}
		for _, v := range values {
			if !isFieldValue(v) {
				return b, refuse("line break or control character in the value of trailer %q", name)
			}
			b = append(append(b, name...), ": "...)
			b = append(append(b, v...), "\r\n"...)
		}
	}
	return append(b, "\r\n"...), nil
}

// repeatable follows nginx: what is sent twice must not do twice.
func repeatable(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPatch, "LOCK":
		return false
	}
	return true
}
