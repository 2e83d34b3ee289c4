// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

func init() { caddy.RegisterModule(Server{}) }

// Server handles requests as a `server` of nginx.conf does. Its own settings
// are those of requests that no location matches.
type Server struct {
	// The value of $server_name: the first name of the server.
	ServerName string `json:"server_name,omitempty"`

	// The names of the server, as those of the matcher nginx_host, if no such
	// matcher has chosen it and the groups of a regular expression among them are
	// to become variables.
	Names []string `json:"names,omitempty"`

	// Files with the authorities of clients whose certificates TLS lets through
	// unverified, for $ssl_client_verify: nginx's `ssl_verify_client optional_no_ca`.
	ClientCAs []string `json:"client_cas,omitempty"`

	// How long a line of a request's header may be, in bytes: 414 for the first one,
	// 400 for others. Default: 8192, as of nginx's `large_client_header_buffers`.
	MaxLine int `json:"max_header_line,omitempty"`

	// Do not merge slashes in paths.
	KeepSlashes bool `json:"keep_slashes,omitempty"`

	Location

	clientCAs *x509.CertPool
	names     serverNames
	set       map[string]bool // variables of `set`: empty until they are set
	values    *App
	logger    *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Server) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.nginx_server", New: func() caddy.Module { return new(Server) }}
}

// Provision compiles the locations and loads their handlers.
func (s *Server) Provision(ctx caddy.Context) error {
	s.logger = ctx.Logger()
	if s.Modifier != "" || s.Path != "" {
		return fmt.Errorf("nginx_server: the server itself has no modifier and no path")
	}
	var err error
	if s.values, err = appOf(ctx); err != nil {
		return err
	}
	if s.clientCAs, err = certPool(s.ClientCAs); err != nil {
		return fmt.Errorf("client_cas: %w", err)
	}
	if s.names, err = newServerNames(s.Names); err != nil {
		return err
	}
	if err := s.provision(ctx, nil); err != nil {
		return err
	}
	s.set = map[string]bool{}
	s.Location.variables(s.set)
	return nil
}

// variables adds the names that rules of l and of what is in it may set.
func (l *Location) variables(to map[string]bool) {
	var rules func(steps []*Step)
	rules = func(steps []*Step) {
		for _, s := range steps {
			if s.Set != "" {
				to[s.Set] = true
			}
			rules(s.Then)
			if s.Config != nil {
				s.Config.variables(to)
			}
		}
	}
	rules(l.Rewrite)
	for _, c := range l.Locations {
		c.variables(to)
	}
}

// maxChanges is how often a request may go back to the choice of a location.
const maxChanges = 10

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	st := s.newState(w, r)
	caddyhttp.SetVar(r.Context(), stateVar, st)
	st.repl.Map(st.placeholder)
	defer st.finish()
	s.RealIP.apply(st)
	err := st.begin()
	if err == nil {
		err = st.phases()
	}
	err = st.settle(err)
	if st.w.gone {
		st.abort(st.w.status)
	}
	st.complete = err == nil
	return err
}

func (s *Server) newState(w http.ResponseWriter, r *http.Request) *state {
	st := &state{
		server: s, r: r, start: time.Now(), location: &s.Location, unparsed: true,
		requestMethod: r.Method, requestURI: r.RequestURI,
		repl: r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer),
	}
	st.w = newWriter(w, st)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = timedBody{r.Body, &st.bodyLate}
	}
	st.join()
	return st
}

// begin reads the request line and runs the server's own rules.
func (st *state) begin() error {
	if err := st.parse(); err != nil {
		st.requestURI = ""
		return err
	}
	if err := st.limitFields(); err != nil {
		return err
	}
	if st.requestMethod == http.MethodTrace || st.requestMethod == http.MethodConnect {
		return statusErr(http.StatusMethodNotAllowed, "method %s", st.requestMethod)
	}
	named, ok := caddyhttp.GetVar(st.r.Context(), nameVar).(capture)
	if !ok {
		named, _ = st.server.names.match(requestHost(st.r))
	}
	st.matched(named)
	err := st.rewrite(&st.server.Location)
	if j, ok := errors.AsType[*jump](err); ok && j.again {
		return nil // the choice of a location comes next anyway
	}
	return err
}

// parse reads the request line.
func (st *state) parse() error {
	if !validMethod(st.requestMethod) {
		return statusErr(http.StatusBadRequest, "the method %q is not in upper case", st.requestMethod)
	}
	if limit := st.maxLine(); len(st.requestMethod)+len(st.requestURI)+len("  HTTP/1.1") > limit {
		return statusErr(http.StatusRequestURITooLong, "a request line of more than %d bytes", limit)
	}
	st.requestURI = originForm(st.requestURI)
	var query bool
	st.path, st.args, query = strings.Cut(st.requestURI, "?")
	st.args, _, _ = strings.Cut(st.args, "#")
	st.hasArgs = st.args != ""
	if st.path == "" && query {
		st.path = "/"
	}
	var err error
	if st.uri, st.quoted, err = normalise(st.path, !st.server.KeepSlashes); err != nil {
		st.uri = ""
		return statusErr(http.StatusBadRequest, "%w: %q", err, st.path)
	}
	return nil
}

// maxLine is how long a line of the header may be without its end. Over HTTP/2
// there are no lines.
func (st *state) maxLine() int {
	if st.r.ProtoMajor > 1 {
		return math.MaxInt
	}
	return cmp.Or(st.server.MaxLine, 8<<10) - len("\r\n")
}

// limitFields refuses a request with a header field that nginx's buffers do not
// hold.
func (st *state) limitFields() error {
	limit := st.maxLine()
	for name, values := range st.r.Header {
		for _, v := range values {
			if len(name)+len(": ")+len(v) > limit {
				return statusErr(statusLongHeader, "the header field %s has more than %d bytes", name, limit)
			}
		}
	}
	return nil
}

// phases runs a request from the choice of its location on.
func (st *state) phases() error {
	c, _ := st.server.find(st.uri)
	if c.redirect != "" {
		st.location = c.location
		to := c.redirect
		if st.args != "" {
			to += "?" + st.args
		}
		return st.sendRedirect(http.StatusMovedPermanently, to)
	}
	st.matched(c.captures)
	return st.enter(c.location)
}

// enter runs a request in a location that has been chosen.
func (st *state) enter(l *Location) error {
	st.location, st.validLocation = l, true
	if l.Internal && !st.internal {
		return statusErr(http.StatusNotFound, "the location is internal")
	}
	if err := st.limitBody(l); err != nil {
		return err
	}
	st.keepBody(l)
	st.limitWaiting(l)
	st.limitConnection(l)
	if l != &st.server.Location { // whose rules have run already
		if err := st.rewrite(l); err != nil {
			return err
		}
	}
	l = st.location
	l.RealIP.apply(st)
	if !l.rules.Allowed(clientAddr(st.r)) {
		return statusErr(http.StatusForbidden, "access forbidden by rule")
	}
	err := l.handler.ServeHTTP(st.w, st.r)
	if err == nil && st.w.accel != "" {
		return st.accel()
	}
	return err
}

// startOver forgets the header of a response that is not sent.
func (st *state) startOver() {
	clear(st.w.Header())
	st.w.Header()["Server"] = []string{"Caddy"}
}

// accel is the redirect that a proxied server has asked for.
func (st *state) accel() error {
	to := st.w.accel
	st.w.accel = ""
	st.startOver()
	j := jumpTo(to)
	if !strings.HasPrefix(to, "@") {
		j.uri = unescape(j.uri)
		if st.r.Method != http.MethodHead {
			st.r.Method = http.MethodGet
		}
	}
	return j
}

// settle follows redirects and turns errors into responses until the request
// is answered.
func (st *state) settle(err error) error {
	for err != nil {
		if errors.Is(err, done{}) {
			return nil
		}
		if j, ok := errors.AsType[*jump](err); ok {
			err = st.follow(j)
			continue
		}
		if st.w.began() {
			return err
		}
		status := statusOf(err)
		if status == http.StatusRequestTimeout || status == statusClientLeft {
			st.abort(status)
		}
		if status >= 500 {
			st.server.logger.Error("request failed", zap.Int("status", status), zap.Error(err))
		}
		err = st.fail(status)
	}
	return nil
}

// follow goes to the target of an internal redirect.
func (st *state) follow(j *jump) error {
	st.changes++
	if st.changes > maxChanges {
		return statusErr(http.StatusInternalServerError, "more than %d internal redirects to %s", maxChanges, j.uri)
	}
	if !j.again {
		st.internal = true
	}
	if name, ok := strings.CutPrefix(j.uri, "@"); ok {
		l := st.server.named(name)
		if st.uri == "" {
			return statusErr(http.StatusInternalServerError, "no location @%s for a request without a path", name)
		}
		if l == nil {
			return statusErr(http.StatusInternalServerError, "there is no location @%s", name)
		}
		err := st.enter(l)
		return err
	}
	st.uri, st.args, st.hasArgs, st.unparsed = j.uri, j.args, j.hasArgs, false
	if !j.again {
		st.location = &st.server.Location
		err := st.rewrite(st.location)
		if again, ok := errors.AsType[*jump](err); ok && again.again {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return st.phases()
}

// statusClientLeft is nginx's for requests whose client has left. To these, and to
// clients that send nothing any more, there is no response.
const statusClientLeft = 499

// abort ends the connection of a request without a response.
func (st *state) abort(status int) {
	st.w.status = status // for the log
	panic(http.ErrAbortHandler)
}

// statusOf is the status that an error stands for.
func statusOf(err error) int {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge
	}
	if e, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		return e.StatusCode
	}
	return http.StatusInternalServerError
}

// defaultMaxBody is nginx's client_max_body_size.
const defaultMaxBody = 1 << 20

func (st *state) limitBody(l *Location) error {
	limit := l.MaxBody
	if limit == 0 {
		limit = defaultMaxBody
	}
	if limit < 0 || st.r.Body == nil || st.r.Body == http.NoBody || st.inErrorPage {
		return nil
	}
	if st.r.ContentLength > limit {
		return statusErr(http.StatusRequestEntityTooLarge, "the body has %d bytes, allowed are %d", st.r.ContentLength, limit)
	}
	if st.limited {
		return nil
	}
	st.limited = true
	st.r.Body = http.MaxBytesReader(st.w.ResponseWriter, st.r.Body, limit)
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Server)(nil)
	_ caddyhttp.MiddlewareHandler = (*Server)(nil)
)
