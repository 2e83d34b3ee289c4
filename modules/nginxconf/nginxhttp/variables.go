// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const placeholderPrefix = "nginx."

// Backslash is the key of a placeholder for what would otherwise stand before
// another placeholder, and so escape it.
const Backslash = placeholderPrefix + "%5C"

// placeholder implements caddy.ReplacerFunc.
func (st *state) placeholder(key string) (any, bool) {
	name, ok := strings.CutPrefix(key, placeholderPrefix)
	switch {
	case !ok:
		return nil, false
	case key == Backslash:
		return `\`, true
	}
	return st.value(name), true
}

// value is a variable's value, empty if it has none.
func (st *state) value(name string) string {
	v, _ := st.variable(name)
	return v
}

// variable returns the value of a variable and whether it has one.
func (st *state) variable(name string) (string, bool) {
	if v, ok := st.vars[name]; ok {
		return v, true
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		if n < len(st.captures.groups) {
			v := st.captures.groups[n]
			if st.escaping {
				v = escapeArgs(v)
			}
			return v, true
		}
		return "", false
	}
	if v, ok := st.named[name]; ok {
		return v, true
	}
	if v, ok := st.defined(name); ok {
		return v, true
	}
	if f := builtin[name]; f != nil {
		v := f(st)
		return v, v != "" || neverUnset[name] || st.emptyOnly(name)
	}
	for _, p := range prefixed {
		if rest, ok := strings.CutPrefix(name, p.prefix); ok && rest != "" {
			return p.get(st, rest)
		}
	}
	return "", st.server.set[name]
}

// defined computes a variable of map, geo or split_clients.
func (st *state) defined(name string) (string, bool) {
	v := st.server.values.lookup(name)
	if v == nil {
		return "", false
	}
	if text, ok := st.computed[name]; ok {
		return text, true
	}
	if st.busy[name] { // a map of itself
		return "", true
	}
	if st.busy == nil {
		st.busy, st.computed = map[string]bool{}, map[string]string{}
	}
	st.busy[name] = true
	text := v.value(st)
	delete(st.busy, name)
	if !v.volatile() {
		st.computed[name] = text
	}
	return text, true
}

// neverUnset are variables that have a value even when it is empty.
var neverUnset = map[string]bool{
	"is_args": true, "http2": true, "http3": true, "request_completion": true,
	"host": true, "https": true, "server_name": true, "document_root": true, "request_filename": true,
}

// emptyOnly reports whether a variable of the request line is empty rather than
// missing.
func (st *state) emptyOnly(name string) bool {
	switch name {
	case "uri", "document_uri":
		return st.path != "" // the path has been looked at
	case "args", "query_string":
		return st.hasArgs
	}
	return false
}

// builtin are the variables with a fixed name.
var builtin map[string]func(*state) string

func init() {
	builtin = map[string]func(*state) string{
		"args":                  func(st *state) string { return st.args },
		"query_string":          func(st *state) string { return st.args },
		"is_args":               isArgs,
		"uri":                   func(st *state) string { return st.uri },
		"document_uri":          func(st *state) string { return st.uri },
		"request_uri":           func(st *state) string { return st.requestURI },
		"request_method":        func(st *state) string { return st.r.Method },
		"request":               requestLine,
		"server_protocol":       func(st *state) string { return protocol(st.r) },
		"scheme":                (*state).scheme,
		"https":                 https,
		"host":                  host,
		"hostname":              hostname,
		"server_name":           func(st *state) string { return st.server.ServerName },
		"remote_addr":           remoteAddr,
		"remote_port":           func(st *state) string { return portOf(st.r.RemoteAddr) },
		"remote_user":           remoteUser,
		"limit_rate":            limitRateText,
		"binary_remote_addr":    binaryRemoteAddr,
		"realip_remote_addr":    func(st *state) string { return hostOnly(st.peer()) },
		"realip_remote_port":    func(st *state) string { return portOf(st.peer()) },
		"server_addr":           func(st *state) string { return hostOnly(localAddr(st.r)) },
		"server_port":           func(st *state) string { return portOf(localAddr(st.r)) },
		"content_length":        func(st *state) string { return st.r.Header.Get("Content-Length") },
		"content_type":          func(st *state) string { return st.r.Header.Get("Content-Type") },
		"document_root":         documentRoot,
		"request_filename":      requestFilename,
		"request_time":          func(st *state) string { return secondsText(time.Since(st.start)) },
		"msec":                  func(*state) string { return msec(time.Now()) },
		"time_local":            func(*state) string { return time.Now().Format("02/Jan/2006:15:04:05 -0700") },
		"time_iso8601":          func(*state) string { return time.Now().Format("2006-01-02T15:04:05-07:00") },
		"pid":                   func(*state) string { return strconv.Itoa(os.Getpid()) },
		"status":                status,
		"body_bytes_sent":       func(st *state) string { return strconv.FormatInt(st.w.bodySize(), 10) },
		"request_id":            requestID,
		"request_completion":    requestCompletion,
		"request_body":          requestBody,
		"request_body_file":     requestBodyFile,
		"request_port":          requestPort,
		"is_request_port":       isRequestPort,
		"realpath_root":         realpathRoot,
		"http2":                 http2,
		"http3":                 unset,
		"ssl_early_data":        unset,
		"gzip_ratio":            unset,
		"upstream_cache_status": unset,
		"ssl_client_verify":     sslClientVerify,
		"http_host":             func(st *state) string { return st.r.Host },
		"proxy_add_x_forwarded_for": func(st *state) string {
			if v := st.r.Header["X-Forwarded-For"]; len(v) > 0 {
				return strings.Join(v, ", ") + ", " + remoteAddr(st)
			}
			return remoteAddr(st)
		},
	}
	maps.Copy(builtin, connVariables)
	for name, f := range tlsVariables {
		builtin[name] = withTLS(f)
	}
}

// prefixed are the variables whose name says which field is meant.
var prefixed = []struct {
	prefix string
	get    func(st *state, name string) (string, bool)
}{
	{"arg_", func(st *state, name string) (string, bool) { return argument(st.args, name) }},
	{"http_", requestField},
	{"cookie_", func(st *state, name string) (string, bool) { return cookie(st.r.Header["Cookie"], name) }},
	{"sent_http_", func(st *state, name string) (string, bool) { return field(st.w.Header(), name) }},
	{"upstream_http_", func(st *state, name string) (string, bool) {
		if st.upstream == nil {
			return "", false
		}
		return field(st.upstream.header, name)
	}},
	{"upstream_cookie_", upstreamCookie},
	{"proxy_protocol_tlv_", proxyTLV},
	{"upstream_", upstreamValue},
}

// requestField returns a header field of the request.
func requestField(st *state, name string) (string, bool) {
	if v := st.r.Header["Cookie"]; name == "cookie" && v != nil {
		return strings.Join(v, "; "), true
	}
	return field(st.r.Header, name)
}

// field returns a header field by its name in lower case with underscores.
func field(h http.Header, name string) (string, bool) {
	if v, ok := h[http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))]; ok && len(v) > 0 {
		return strings.Join(v, ", "), true
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(strings.ReplaceAll(k, "-", "_"), name) {
			return strings.Join(v, ", "), true
		}
	}
	return "", false
}

// argument returns the first argument of that name, as it was sent.
func argument(args, name string) (string, bool) {
	for part := range strings.SplitSeq(args, "&") {
		if k, v, ok := strings.Cut(part, "="); ok && strings.EqualFold(k, name) {
			return v, true
		}
	}
	return "", false
}

// cookie returns the first cookie of that name, whatever its case.
func cookie(lines []string, name string) (string, bool) {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ";") {
			if k, v, ok := strings.Cut(strings.TrimLeft(part, " "), "="); ok && strings.EqualFold(strings.TrimSpace(k), name) {
				return strings.TrimSpace(v), true
			}
		}
	}
	return "", false
}

// upstreamCookie is the value of a cookie that the proxied server has set.
func upstreamCookie(st *state, name string) (string, bool) {
	if st.upstream == nil {
		return "", false
	}
	for _, line := range st.upstream.header["Set-Cookie"] {
		pair, _, _ := strings.Cut(line, ";")
		if k, v, ok := strings.Cut(pair, "="); ok && strings.EqualFold(strings.TrimSpace(k), name) {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// upstreamValue is what the upstream app has recorded.
func upstreamValue(st *state, name string) (string, bool) {
	v, ok := st.repl.Get("http.upstream." + name)
	if !ok {
		return "", false
	}
	text := fmt.Sprint(v)
	return text, text != ""
}

// unset is a variable of what cannot happen here: HTTP/3, early data, caches.
func unset(*state) string { return "" }

// requestID is 16 random bytes, the same all over a request.
func requestID(st *state) string {
	if st.id == "" {
		var b [16]byte
		_, _ = rand.Read(b[:])
		st.id = hex.EncodeToString(b[:])
	}
	return st.id
}

// requestCompletion says that the response has been sent.
func requestCompletion(st *state) string {
	if st.complete {
		return "OK"
	}
	return ""
}

// requestPort is the port that the client asked for, in the Host field.
func requestPort(st *state) string { return portOf(st.r.Host) }

func isRequestPort(st *state) string {
	if requestPort(st) != "" {
		return ":"
	}
	return ""
}

func http2(st *state) string {
	switch {
	case st.r.ProtoMajor != 2:
		return ""
	case st.r.TLS == nil:
		return "h2c"
	}
	return "h2"
}

func realpathRoot(st *state) string {
	root, err := filepath.EvalSymlinks(documentRoot(st))
	if err != nil {
		return ""
	}
	return root
}

func isArgs(st *state) string {
	if st.args != "" {
		return "?"
	}
	return ""
}

func requestLine(st *state) string {
	return st.requestMethod + " " + st.r.RequestURI + " " + protocol(st.r)
}

func protocol(r *http.Request) string {
	if r.ProtoMajor >= 2 {
		return fmt.Sprintf("HTTP/%d.0", r.ProtoMajor)
	}
	return fmt.Sprintf("HTTP/%d.%d", r.ProtoMajor, r.ProtoMinor)
}

func https(st *state) string {
	if st.r.TLS != nil {
		return "on"
	}
	return ""
}

// host is the name in the request, in lower case and without port, or that of
// the server.
func host(st *state) string {
	if st.r.Host == "" {
		return st.server.ServerName
	}
	return requestHost(st.r)
}

func hostname(*state) string {
	h, _ := os.Hostname()
	return strings.ToLower(h)
}

// remoteAddr is the client's address; unix: for a unix socket.
func remoteAddr(st *state) string {
	if a := clientAddr(st.r); !a.IsValid() {
		return "unix:"
	}
	return hostOnly(st.r.RemoteAddr)
}

// clientAddr is the client's address, the zero one for a unix socket.
func clientAddr(r *http.Request) netip.Addr {
	a, err := netip.ParseAddr(hostOnly(r.RemoteAddr))
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}

func binaryRemoteAddr(st *state) string {
	a := clientAddr(st.r)
	if !a.IsValid() {
		return ""
	}
	return string(a.AsSlice())
}

func remoteUser(st *state) string {
	user, _, _ := st.r.BasicAuth()
	return user
}

func (st *state) peer() string {
	if st.realip != "" {
		return st.realip
	}
	return st.r.RemoteAddr
}

func localAddr(r *http.Request) string {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return a.String()
	}
	return ""
}

func portOf(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return port
}

func status(st *state) string {
	switch {
	case st.w.status == 0:
		return "000"
	case st.okForError:
		return "200"
	}
	return strconv.Itoa(st.w.status)
}

func secondsText(d time.Duration) string {
	return strconv.FormatFloat(d.Truncate(time.Millisecond).Seconds(), 'f', 3, 64)
}

func msec(t time.Time) string {
	return fmt.Sprintf("%d.%03d", t.Unix(), t.Nanosecond()/1e6)
}

// Builtin reports whether nginx_server has a variable of that name, which must
// not be one of map, geo, split_clients or set.
func Builtin(name string) bool {
	if builtin[name] != nil {
		return true
	}
	for _, p := range prefixed {
		if rest, ok := strings.CutPrefix(name, p.prefix); ok && rest != "" {
			if p.prefix == "upstream_" {
				return upstreamNames[rest]
			}
			return true
		}
	}
	return false
}

var upstreamNames = map[string]bool{
	"addr": true, "status": true, "connect_time": true, "header_time": true, "response_time": true, "response_length": true,
	"bytes_sent": true, "bytes_received": true,
}

func documentRoot(st *state) string {
	if st.location == nil || st.location.Files == nil {
		return ""
	}
	return st.expand(st.location.Files.Root)
}

func requestFilename(st *state) string {
	if st.location == nil || st.location.Files == nil {
		return ""
	}
	return st.location.Files.file(st, st.uri)
}
