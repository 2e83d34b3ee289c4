// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// phrases are the status lines as nginx's own pages have them, where they differ
// from net/http's.
var phrases = map[int]string{
	302: "Found", 401: "Authorization Required", 405: "Not Allowed", 408: "Request Time-out", 413: "Request Entity Too Large",
	414: "Request-URI Too Large", 416: "Requested Range Not Satisfiable",
	503: "Service Temporarily Unavailable", 504: "Gateway Time-out", 505: "HTTP Version Not Supported",
}

func phrase(status int) string {
	if p := phrases[status]; p != "" {
		return p
	}
	return http.StatusText(status)
}

// hasPage reports whether nginx has a page of its own for a status.
func hasPage(status int) bool {
	switch {
	case isRedirect(status), 400 <= status && status <= 416 && status != 407, 500 <= status && status <= 507 && status != 506:
		return true
	case status == 421, status == 429, status == statusLongHeader:
		return true
	}
	return false
}

// statusLongHeader is nginx's own for a header line that is too long; clients get
// 400.
const statusLongHeader = 494

// lastStatuses are the errors after which nginx closes the connection.
var lastStatuses = []int{400, 413, 414, statusLongHeader, 495, 496, 497, 500, 501}

// fail answers an error: with an error page of the location if there is one.
func (st *state) fail(status int) error {
	if st.r.ProtoMajor < 2 && slices.Contains(lastStatuses, status) {
		st.w.Header().Set("Connection", "close")
	}
	l := st.location
	if l != nil && st.changes <= maxChanges && (!st.inErrorPage || l.RecursiveErrorPages != nil && *l.RecursiveErrorPages) {
		for _, p := range l.ErrorPages {
			if slices.Contains(p.Status, status) {
				st.inErrorPage = true
				return st.errorPage(p, status)
			}
		}
	}
	return st.page(status)
}

// errorPage goes to an error page.
func (st *state) errorPage(p *ErrorPage, status int) error {
	uri := st.expand(p.URI)
	if uri == "" {
		return st.page(status)
	}
	answered := status
	if p.Response > 0 {
		answered = p.Response
	}
	if uri[0] != '/' && uri[0] != '@' {
		if !isRedirect(answered) {
			answered = http.StatusFound
		}
		st.errStatus = 0
		return st.sendRedirect(answered, uri)
	}
	if answered == statusLongHeader {
		answered = http.StatusBadRequest
	}
	st.errStatus = answered
	if p.Response < 0 {
		st.errStatus = 0
	}
	j := jumpTo(uri)
	if uri[0] == '/' && st.r.Method != http.MethodHead {
		st.r.Method = http.MethodGet
	}
	return j
}

// page sends nginx's built-in page for a status.
func (st *state) page(status int) error {
	h := st.w.Header()
	for _, name := range []string{"Accept-Ranges", "Etag", "Last-Modified"} { // of a file that is not sent
		h.Del(name)
	}
	st.errStatus = 0
	if !hasPage(status) {
		if status >= 300 && status != http.StatusNotModified {
			h.Set("Content-Length", "0")
		}
		st.w.WriteHeader(status)
		return done{}
	}
	more := ""
	if status == statusLongHeader {
		status, more = http.StatusBadRequest, "Request Header Or Cookie Too Large"
	}
	heading := strings.TrimSpace(fmt.Sprintf("%d %s", status, phrase(status)))
	title := heading
	if more != "" {
		title, more = fmt.Sprintf("%d %s", status, more), "<center>"+more+"</center>\r\n"
	}
	body := "<html>\r\n<head><title>" + title + "</title></head>\r\n<body>\r\n<center><h1>" + heading +
		"</h1></center>\r\n" + more + "<hr><center>Caddy</center>\r\n</body>\r\n</html>\r\n"
	h.Set("Content-Type", "text/html")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	st.w.WriteHeader(status)
	if st.r.Method != http.MethodHead {
		_, _ = st.w.Write([]byte(body))
	}
	return done{}
}

// sendRedirect sends the client to another place.
func (st *state) sendRedirect(status int, to string) error {
	st.w.Header()["Location"] = []string{st.absoluteURL(to)}
	return st.page(status)
}

// absoluteURL puts scheme and host before a path, unless that is switched off.
func (st *state) absoluteURL(to string) string {
	if !strings.HasPrefix(to, "/") || !st.absolute() {
		return to
	}
	host := st.value("host")
	if st.r.Host == "" {
		host = st.value("server_addr")
	}
	return st.scheme() + "://" + host + st.portSuffix() + to
}

// absolute reports whether redirects are sent with scheme and host.
func (st *state) absolute() bool {
	return st.location == nil || st.location.AbsoluteRedirect == nil || *st.location.AbsoluteRedirect
}

func (st *state) scheme() string {
	if st.r.TLS != nil {
		return "https"
	}
	return "http"
}

// portSuffix is the port that an absolute redirect names: that of the server,
// unless it is the scheme's own.
func (st *state) portSuffix() string {
	port := st.value("server_port")
	if l := st.location; l != nil && l.PortInRedirect != nil && !*l.PortInRedirect {
		return ""
	}
	if port == "" || port == "80" && st.r.TLS == nil || port == "443" && st.r.TLS != nil {
		return ""
	}
	return ":" + port
}

// contentType is the type of a response that is made here.
func (st *state) contentType() string {
	var types map[string]string
	kind := ""
	if l := st.location; l != nil {
		types, kind = l.Types, l.DefaultType
	}
	return typeOf(st.uri, types, kind)
}

var defaultTypes = map[string]string{"html": "text/html", "gif": "image/gif", "jpg": "image/jpeg"}

// typeOf is the type of a path by its extension.
func typeOf(uri string, types map[string]string, kind string) string {
	if types == nil {
		types = defaultTypes
	}
	name := uri[strings.LastIndexByte(uri, '/')+1:]
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		if t := types[strings.ToLower(name[dot+1:])]; t != "" {
			return t
		}
	}
	if kind == "" {
		return "text/plain"
	}
	return kind
}

// hostOnly is an address without its port.
func hostOnly(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
