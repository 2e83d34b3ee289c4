// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// state is what nginx_server knows of a request while it handles it. One
// goroutine uses it, and the access log after it.
type state struct {
	server *Server
	r      *http.Request
	w      *writer
	repl   *caddy.Replacer
	start  time.Time

	requestMethod string // as it came
	requestURI    string
	path          string // the part of requestURI before the question mark
	uri           string
	args          string
	hasArgs       bool // there are arguments, if only empty ones
	quoted        bool // the request line had escapes

	location  *Location
	captures  capture           // of the last regular expression
	named     map[string]string // named captures
	vars      map[string]string // set by `set`
	computed  map[string]string // values of map and the like, computed once
	busy      map[string]bool   // variables being computed
	upstream  *upstreamResponse // the last response of a proxied server
	accelRate *int64            // what X-Accel-Limit-Rate says, if anything
	realip    string            // the peer's address before real_ip, if replaced

	conn          *connection // nil without a Connections wrapper
	requestNumber uint64      // among those of the connection
	sentBefore    int64       // bytes of the connection, before this request
	received      int64       // bytes of this request
	ended         bool
	complete      bool      // the response has been sent
	body          *keptBody // nil if $request_body is not used
	proxied       bool      // a request to a server has been made
	id            string

	bodyLate    atomic.Bool // the body has not come within its time
	timeoutsOff []func()    // end send_timeout and client_body_timeout of a location

	unparsed      bool // the request line is still what is to be passed on
	validLocation bool // uri begins with the path of location
	internal      bool
	inErrorPage   bool
	escaping      bool // captures are escaped: they become part of a URL
	limited       bool // the size of the body is limited already
	changes       int
	errStatus     int  // the status that an error page answers with
	okForError    bool // which was 200, whatever has become of it
}

const stateVar = "nginx.state"

// stateOf returns the state of the request, nil outside nginx_server.
func stateOf(ctx context.Context) *state {
	st, _ := caddyhttp.GetVar(ctx, stateVar).(*state)
	return st
}

// jump is an internal redirect, on its way to nginx_server as an error.
type jump struct {
	uri  string // the path, or @name
	args string
	// hasArgs: there are arguments, if only empty ones
	hasArgs bool
	again   bool // a changed path of the same request: rewrite ... last
}

func (j *jump) Error() string { return "internal redirect to " + j.uri }

// done ends a request that has been answered.
type done struct{}

func (done) Error() string { return "the request has been answered" }

// jumpTo makes a jump of a configured target: a path with arguments, or @name.
func jumpTo(target string) *jump {
	if strings.HasPrefix(target, "@") {
		return &jump{uri: target}
	}
	uri, args, has := strings.Cut(target, "?")
	return &jump{uri: uri, args: args, hasArgs: has}
}

// expand puts placeholders in.
func (st *state) expand(s string) string {
	if !strings.ContainsAny(s, `{\`) {
		return s
	}
	return st.repl.ReplaceAll(s, "")
}

// matched remembers the groups of a regular expression.
func (st *state) matched(c capture) {
	if c.regex == nil {
		return
	}
	st.captures = c
	for i, name := range c.regex.SubexpNames() {
		if name == "" {
			continue
		}
		if st.named == nil {
			st.named = map[string]string{}
		}
		st.named[name] = c.groups[i]
	}
}

func statusErr(status int, format string, args ...any) error {
	return caddyhttp.HandlerError{StatusCode: status, Err: fmt.Errorf(format, args...)}
}

func notFound(http.ResponseWriter, *http.Request) error {
	return statusErr(http.StatusNotFound, "nothing is configured for this path")
}

// chain is one handler of a location and what comes after it.
type chain struct {
	handler caddyhttp.MiddlewareHandler
	next    caddyhttp.Handler
}

func (c chain) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	return c.handler.ServeHTTP(w, r, c.next)
}
