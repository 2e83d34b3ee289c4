// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	_ "github.com/caddy-upstream/caddy-upstream/modules/sticky"
)

// TestEveryAnswerHasItsCookie: with or without a body, over our transport and over
// Caddy's, among many requests that use each other's walks.
func TestEveryAnswerHasItsCookie(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/g/none" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write([]byte("hello"))
	}))
	defer backend.Close()
	for _, inner := range []string{"http", "upstream_keepalive"} {
		t.Run(inner, func(t *testing.T) {
			s := newStack()
			s.groups["g"] = object{
				"servers": []any{object{"address": backend.Listener.Addr().String()}},
				"sticky":  object{"mode": "cookie", "name": "sid"},
			}
			s.route("/g", "g", object{"transport": object{"protocol": inner}}, nil)
			s.run(t)
			client := &http.Client{Transport: &http.Transport{
				MaxIdleConnsPerHost: 16,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
				},
			}}
			defer client.CloseIdleConnections()
			kinds := [][2]string{{"GET", "/g/some"}, {"HEAD", "/g/some"}, {"GET", "/g/none"}}
			var wg sync.WaitGroup
			for worker := range 12 {
				kind := kinds[worker%len(kinds)]
				wg.Go(func() {
					for range 100 {
						req, err := http.NewRequest(kind[0], "http://x"+kind[1], nil)
						if err != nil {
							t.Error(err)
							return
						}
						res, err := client.Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						res.Body.Close()
						if got := res.Header["Set-Cookie"]; len(got) != 1 {
							t.Errorf("%v: Set-Cookie %q, want one", kind, got)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
