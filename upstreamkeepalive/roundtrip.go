// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// RoundTrip implements http.RoundTripper, for use without next_upstream. Failures
// to connect are reverseproxy.DialError, so that Caddy's own retries work.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := &trip{t: t, req: req}
	x.a = &x.own
	if ctx := req.Context(); ctx.Done() != nil {
		x.stop = context.AfterFunc(ctx, x.own.Abort)
	}
	err := x.run()
	if err == nil {
		return &x.resp, nil
	}
	if x.stop != nil {
		x.stop()
	}
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
