// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/cancelwatch"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// solo is a trip without an attempt from outside.
type solo struct {
	trip
	own     exchange.Attempt
	watched cancelwatch.Entry
}

// RoundTrip implements http.RoundTripper, for use without next_upstream. Failures
// to connect are reverseproxy.DialError, so that Caddy's own retries work.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	x := &solo{trip: trip{t: t, req: req}}
	x.a, x.client = &x.own, &x.watched
	t.clients.Add(&x.watched, x)
	err := x.run()
	if err == nil {
		return &x.resp, nil
	}
	x.watched.Stop()
	switch err.Kind {
	case exchange.ClientBody, exchange.ClientGone:
		return nil, err.Err
	case exchange.Local:
		return nil, caddyhttp.Error(http.StatusInternalServerError, err)
	case exchange.Refused:
		return nil, caddyhttp.Error(err.Status, err)
	}
	if !err.Sent && (err.Op == "connect" || err.Op == "tls handshake" || err.Op == "proxy protocol") {
		return nil, reverseproxy.NewDialError(err)
	}
	return nil, err
}

// Context implements cancelwatch.Work.
func (x *solo) Context() context.Context { return x.req.Context() }

// Canceled implements cancelwatch.Work.
func (x *solo) Canceled() { x.own.Abort() }
