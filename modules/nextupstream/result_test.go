// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func newText(s string) io.Reader { return strings.NewReader(s) }

// TestErrorsBecomeTheRightStatusAndNumberOfTries is about what reaches Caddy's
// loop: it asks again for anything that has a DialError in its chain, and takes
// anything that has context.Canceled there for a client that has left.
func TestErrorsBecomeTheRightStatusAndNumberOfTries(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		err    error
		status int
		tries  int
	}{
		"refused":        {reverseproxy.NewDialError(refused), 502, 2},
		"reset":          {syscall.ECONNRESET, 502, 2},
		"no descriptors": {reverseproxy.NewDialError(&net.OpError{Op: "dial", Err: syscall.EMFILE}), 500, 1},
		"no ports":       {reverseproxy.NewDialError(&net.OpError{Op: "dial", Err: syscall.EADDRNOTAVAIL}), 500, 1},
		"timeout":        {os.ErrDeadlineExceeded, 504, 2},
		"a cancellation that is not the client's":      {fmt.Errorf("pool: %w", context.Canceled), 502, 2},
		"a text that Caddy takes for a client's leave": {errors.New("operation was canceled"), 502, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, "", func(int, *http.Request) (*http.Response, error) { return nil, c.err })
			status, _, err := p.serve(httptest.NewRequest("GET", "/", nil))
			if status != c.status || len(p.asked) != c.tries {
				t.Errorf("status %d after %d tries (%v), want %d after %d", status, len(p.asked), err, c.status, c.tries)
			}
		})
	}
}

// brokenBody yields some bytes and then an error.
type brokenBody struct {
	io.Reader
	err error
}

func (b *brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = b.err
	}
	return n, err
}

func (*brokenBody) Close() error { return nil }

func TestARequestBodyThatBreaksIsNoServersFault(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"client disconnects":  {io.ErrUnexpectedEOF, 499},
		"client resets":       {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, 499},
		"client is too slow":  {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, 408},
		"too large":           {&http.MaxBytesError{Limit: 1}, 413},
		"too large for Caddy": {caddyhttp.Error(413, &http.MaxBytesError{Limit: 1}), 413},
		"not chunks":          {errors.New("invalid byte in chunk length"), 400},
	} {
		for _, options := range []string{"", `, "request_buffering": "off"`} {
			t.Run(name+options, func(t *testing.T) {
				p := newProxy(t, options, func(_ int, r *http.Request) (*http.Response, error) {
					_, err := io.Copy(io.Discard, r.Body)
					return nil, err
				})
				r := httptest.NewRequest("POST", "/", &brokenBody{strings.NewReader("some"), c.err})
				r.ContentLength = 10
				status, _, err := p.serve(r)
				if status != c.status {
					t.Errorf("status %d (%v), want %d", status, err, c.status)
				}
				want := 0
				if options != "" {
					want = 1
				}
				if len(p.asked) != want {
					t.Errorf("%d servers were asked, want %d", len(p.asked), want)
				}
			})
		}
	}
}

// TestAPOSTIsNotRepeatedOverATransportThatCannotTellWhetherItWasSent is about
// transports like FastCGI.
func TestAPOSTIsNotRepeatedOverATransportThatCannotTellWhetherItWasSent(t *testing.T) {
	p := newProxy(t, "", func(int, *http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET })
	if status, _, err := p.serve(httptest.NewRequest("POST", "/", nil)); status != 502 || len(p.asked) != 1 {
		t.Errorf("status %d after %d tries (%v), want 502 after 1", status, len(p.asked), err)
	}
}

// Transports over HTTP/2 send the body from a goroutine of their own, which may
// come to it only after the server has answered.
func TestABodyThatIsNotBufferedIsReadByTheLastTryAlone(t *testing.T) {
	for name, end := range map[string]func(*http.Request) (*http.Response, error){
		"replaced": func(r *http.Request) (*http.Response, error) {
			res := ok(r, "busy")
			res.StatusCode = http.StatusServiceUnavailable
			return res, nil
		},
		"failed": func(*http.Request) (*http.Response, error) { return nil, errors.New("stream reset") },
	} {
		t.Run(name, func(t *testing.T) {
			var late io.ReadCloser
			p := newProxy(t, `, "request_buffering": "off", "conditions": ["error", "http_503", "non_idempotent"]`,
				func(try int, r *http.Request) (*http.Response, error) {
					if try == 1 {
						late = r.Body
						return end(r)
					}
					if stolen, err := io.ReadAll(late); err == nil || len(stolen) > 0 {
						t.Errorf("the first try reads %q, %v", stolen, err)
					}
					late.Close()
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					return ok(r, string(body)), nil
				})
			_, w, err := p.serve(httptest.NewRequest("POST", "/", strings.NewReader("hello")))
			if err != nil || w.Body.String() != "hello" {
				t.Errorf("the client got %q, %v, want the body", w.Body, err)
			}
		})
	}
}

func TestAPanicInATransportGivesTheLeaseBack(t *testing.T) {
	for _, options := range []string{"", observed} {
		t.Run(options, func(t *testing.T) {
			p := newProxy(t, options, func(int, *http.Request) (*http.Response, error) { panic("transport") })
			func() {
				defer func() { _ = recover() }()
				_, _, _ = p.serve(httptest.NewRequest("GET", "/", nil))
			}()
			p.rest()
		})
	}
}
