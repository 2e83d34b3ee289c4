// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(new(HTTP)) }

// HTTP sends a request to a server and looks at the answer. Redirects are not
// followed: they are answers like others.
type HTTP struct {
	Settings

	// The method. Default: GET.
	Method string `json:"method,omitempty"`

	// The path and query. Default: `/`.
	URI string `json:"uri,omitempty"`

	// The Host of the request. Default: the address that is asked.
	Host string `json:"host,omitempty"`

	// Headers of the request.
	Headers http.Header `json:"headers,omitempty"`

	// The body of the request.
	Body string `json:"body,omitempty"`

	// The statuses that pass: numbers, ranges `200-399`, or classes `2xx`.
	// Default: 2xx. (A redirect is not an answer of the
	// server that was asked; nginx and HAProxy let it pass.)
	ExpectStatus []string `json:"expect_status,omitempty"`

	// Conditions on the answer's headers; all must hold.
	ExpectHeaders []HeaderCondition `json:"expect_headers,omitempty"`

	// A regular expression that the first 64 KiB of the answer's body must match.
	ExpectBody string `json:"expect_body,omitempty"`

	// A regular expression that they must not match.
	RejectBody string `json:"reject_body,omitempty"`

	// Ask over TLS. The fields are those of Caddy's http transport. Default: ask
	// as the handlers of the group do, which must not differ then.
	TLS *clienttls.Settings `json:"tls,omitempty"`

	// Ask without TLS, whatever the handlers of the group do.
	TLSOff bool `json:"tls_off,omitempty"`

	statuses   []statusRange
	expectBody *regexp.Regexp
	rejectBody *regexp.Regexp
	head       string // the request, but for Host

	manner
}

// HeaderCondition is a condition on one header of an answer.
type HeaderCondition struct {
	// The name of the header.
	Name string `json:"name"`
	// A regular expression for its value. Default: the header must be there.
	Match string `json:"match,omitempty"`
	// The condition must not hold.
	Not bool `json:"not,omitempty"`

	re *regexp.Regexp
}

type statusRange struct{ low, high int }

// maxCheckedBody is how much of a body conditions see, maxAnswer how long an
// answer may be with its header and framing, in bytes.
const (
	maxCheckedBody = 64 << 10
	maxAnswer      = 256 << 10
)

// userAgent tells servers who is asking.
const userAgent = "caddy-upstream (health check)"

// CaddyModule returns the Caddy module information.
func (*HTTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.health_checks.http", New: func() caddy.Module { return new(HTTP) }}
}

// Provision checks the settings.
func (h *HTTP) Provision(ctx caddy.Context) error {
	if err := h.settle(); err != nil {
		return err
	}
	if err := h.compile(); err != nil {
		return err
	}
	if err := h.checkTLS(); err != nil {
		return err
	}
	if err := h.settleTLS(ctx, h.TLS, tlsIf(!h.TLSOff)); err != nil {
		return err
	}
	return h.compose()
}

func (h *HTTP) checkTLS() error { return offOrOn(h.TLSOff, h.TLS) }

// Rules implements upstream.HealthCheck.
func (h *HTTP) Rules() upstream.CheckRules { return h.rules("http " + h.uri()) }

// Watch implements upstream.HealthCheck.
func (h *HTTP) Watch(judge upstream.Judge) upstream.Watcher {
	return watch("http", h, &h.Settings, h.client, judge)
}

// compile reads statuses and regular expressions.
func (h *HTTP) compile() error {
	h.statuses = []statusRange{{200, 299}}
	if len(h.ExpectStatus) > 0 {
		h.statuses = nil
	}
	for _, text := range h.ExpectStatus {
		r, err := parseStatus(text)
		if err != nil {
			return fmt.Errorf("expect_status: %w", err)
		}
		h.statuses = append(h.statuses, r)
	}
	var err error
	if h.expectBody, err = optionalRegexp(h.ExpectBody); err != nil {
		return fmt.Errorf("expect_body: %w", err)
	}
	if h.rejectBody, err = optionalRegexp(h.RejectBody); err != nil {
		return fmt.Errorf("reject_body: %w", err)
	}
	for i := range h.ExpectHeaders {
		c := &h.ExpectHeaders[i]
		if !httpguts.ValidHeaderFieldName(c.Name) {
			return fmt.Errorf("expect_headers: %q is not the name of a header", c.Name)
		}
		if c.re, err = optionalRegexp(c.Match); err != nil {
			return fmt.Errorf("expect_headers: %s: %w", c.Name, err)
		}
	}
	return nil
}

func optionalRegexp(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	return regexp.Compile(text)
}

// parseStatus reads 204, 200-399 or 2xx.
func parseStatus(text string) (statusRange, error) {
	if len(text) == 3 && text[1:] == "xx" && text[0] >= '1' && text[0] <= '5' {
		low := int(text[0]-'0') * 100
		return statusRange{low, low + 99}, nil
	}
	lowText, highText, isRange := strings.Cut(text, "-")
	if !isRange {
		highText = lowText
	}
	low, err1 := strconv.Atoi(lowText)
	high, err2 := strconv.Atoi(highText)
	if err1 != nil || err2 != nil || low < 100 || high > 999 || low > high {
		return statusRange{}, fmt.Errorf("%q: expected a status such as 204, a range such as 200-399 or a class such as 2xx", text)
	}
	return statusRange{low, high}, nil
}

// compose writes the request once; only Host differs between servers.
func (h *HTTP) compose() error {
	method, uri := h.method(), h.uri()
	if !httpguts.ValidHeaderFieldName(method) || method == http.MethodConnect {
		return fmt.Errorf("method %q: expected a method such as GET or HEAD", method)
	}
	if uri[0] != '/' && uri != "*" || strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("uri %q: expected a path that begins with / and has no spaces", uri)
	}
	if h.Host != "" && !httpguts.ValidHostHeader(h.Host) {
		return fmt.Errorf("host %q: not valid", h.Host)
	}
	var b strings.Builder
	b.WriteString("Connection: close\r\n")
	if h.Headers.Get("User-Agent") == "" {
		b.WriteString("User-Agent: " + userAgent + "\r\n")
	}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		for _, v := range h.Headers[name] {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) || ownHeader(name) {
				return fmt.Errorf("headers: %q: %q cannot be sent", name, v)
			}
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	if h.Body != "" {
		b.WriteString("Content-Length: " + strconv.Itoa(len(h.Body)) + "\r\n")
	}
	h.head = method + " " + uri + " HTTP/1.1\r\n" + b.String()
	return nil
}

func (h *HTTP) method() string { return cmp.Or(h.Method, http.MethodGet) }
func (h *HTTP) uri() string    { return cmp.Or(h.URI, "/") }

// ownHeader reports whether the check writes that header itself.
func ownHeader(name string) bool {
	return slices.ContainsFunc([]string{"Host", "Connection", "Content-Length", "Transfer-Encoding"},
		func(own string) bool { return strings.EqualFold(own, name) })
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// check implements checker.
func (h *HTTP) check(ctx context.Context, t target) error {
	conn, err := dial(ctx, t, h.client, "http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	host := h.Host
	if host == "" {
		host = t.host()
	}
	if _, err := io.WriteString(conn, h.head+"Host: "+host+"\r\n\r\n"+h.Body); err != nil {
		return fmt.Errorf("sending the request: %w", plain(err))
	}
	limited := io.LimitedReader{R: conn, N: maxAnswer}
	r := readers.Get().(*bufio.Reader)
	r.Reset(&limited)
	defer func() { r.Reset(nil); readers.Put(r) }()
	err = h.read(r)
	if err != nil && limited.N <= 0 {
		return fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return err
}

// maxInterim is how many answers may come before the final one.
const maxInterim = 8

func (h *HTTP) read(r *bufio.Reader) error {
	for range maxInterim {
		res, err := http.ReadResponse(r, &http.Request{Method: h.method()})
		if err != nil {
			return fmt.Errorf("reading the answer: %w", plain(err))
		}
		if res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			defer res.Body.Close()
			return h.judge(res)
		}
	}
	return errors.New("reading the answer: nothing but interim ones")
}

// judge looks at an answer.
func (h *HTTP) judge(res *http.Response) error {
	if !slices.ContainsFunc(h.statuses, func(r statusRange) bool { return r.low <= res.StatusCode && res.StatusCode <= r.high }) {
		if to := res.Header.Get("Location"); to != "" {
			return fmt.Errorf("status %d, a redirect to %.100q", res.StatusCode, to)
		}
		return fmt.Errorf("status %d", res.StatusCode)
	}
	for i := range h.ExpectHeaders {
		if err := h.ExpectHeaders[i].judge(res.Header); err != nil {
			return err
		}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxCheckedBody))
	switch {
	case err != nil:
		return fmt.Errorf("reading the body: %w", plain(err))
	case h.expectBody != nil && !h.expectBody.Match(body):
		return fmt.Errorf("the body does not match %s", h.ExpectBody)
	case h.rejectBody != nil && h.rejectBody.Match(body):
		return fmt.Errorf("the body matches %s", h.RejectBody)
	}
	return nil
}

func (c *HeaderCondition) judge(header http.Header) error {
	values := header.Values(c.Name)
	holds := len(values) > 0
	if c.re != nil {
		holds = slices.ContainsFunc(values, c.re.MatchString)
	}
	switch {
	case holds == !c.Not:
		return nil
	case c.Not:
		return fmt.Errorf("header %s is %q", c.Name, strings.Join(values, ", "))
	case len(values) == 0:
		return fmt.Errorf("header %s is missing", c.Name)
	}
	return fmt.Errorf("header %s is %q", c.Name, strings.Join(values, ", "))
}

// plain returns errors in words that say something to a person.
func plain(err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return errors.New("timed out")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the server closed the connection")
	}
	return err
}

// UnmarshalCaddyfile reads:
//
//	health_check [http] [<setting>=<value>...] [method=] [uri=] [host=] [body=]
//	        [expect_status=] [tls...] {
//	    header <name> <value>
//	    expect_header [!]<name> [<regexp>]
//	    expect_body <regexp>
//	    reject_body <regexp>
//	}
func (h *HTTP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	params := h.params()
	params["method"] = cfg.Param{Set: stringParam(&h.Method)}
	params["uri"] = cfg.Param{Set: stringParam(&h.URI)}
	params["host"] = cfg.Param{Set: stringParam(&h.Host)}
	params["body"] = cfg.Param{Set: stringParam(&h.Body)}
	params["expect_status"] = cfg.Param{Set: func(v string) error {
		h.ExpectStatus = strings.Split(v, ",")
		return nil
	}}
	params["tls"] = cfg.Param{Flag: true, Set: func(string) error { needTLS(&h.TLS); return nil }}
	params["tls_off"] = cfg.Param{Flag: true, Set: flagParam(&h.TLSOff)}
	tlsParams(params, func() *clienttls.Settings { return needTLS(&h.TLS) })
	if err := params.Parse(d.RemainingArgs()); err != nil {
		return d.Errf("health_check: %v", err)
	}
	options := cfg.Options{
		"header":        h.parseHeader,
		"expect_header": h.parseExpectHeader,
		"expect_body":   cfg.String(&h.ExpectBody),
		"reject_body":   cfg.String(&h.RejectBody),
	}
	if err := options.Block(d, "health_check", cfg.Repeatable{"header": true, "expect_header": true}); err != nil {
		return err
	}
	check := *h // what Provision would say, said where the line is
	check.ExpectHeaders = slices.Clone(h.ExpectHeaders)
	for _, f := range []func() error{check.settle, check.compile, check.checkTLS, check.compose} {
		if err := f(); err != nil {
			return d.Errf("health_check: %v", err)
		}
	}
	return nil
}

func (h *HTTP) parseHeader(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Errf("header: got %d arguments, expected <name> <value>", len(args))
	}
	if h.Headers == nil {
		h.Headers = http.Header{}
	}
	h.Headers.Add(args[0], args[1])
	return nil
}

func (h *HTTP) parseExpectHeader(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 && len(args) != 2 {
		return d.Errf("expect_header: got %d arguments, expected [!]<name> [<regexp>]", len(args))
	}
	name, not := strings.CutPrefix(args[0], "!")
	c := HeaderCondition{Name: name, Not: not}
	if len(args) == 2 {
		c.Match = args[1]
	}
	h.ExpectHeaders = append(h.ExpectHeaders, c)
	return nil
}

// Interface guards
var (
	_ upstream.TLSFollower  = (*HTTP)(nil)
	_ caddy.Provisioner     = (*HTTP)(nil)
	_ caddyfile.Unmarshaler = (*HTTP)(nil)
)
