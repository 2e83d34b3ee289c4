// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestTheSendTimeoutIsThatOfTheLocationTheRequestIsIn(t *testing.T) {
	w := &caddyhttp.IdleTimeoutWriter{Deadline: caddyhttp.IdleDeadline{Timeout: time.Minute}}
	r := httptest.NewRequest("GET", "/", nil)
	st := &state{r: r.WithContext(caddyhttp.ContextWithIdleTimeouts(r.Context(), nil, w))}
	for _, c := range []struct{ own, want time.Duration }{{0, time.Minute}, {5 * time.Second, 5 * time.Second}, {time.Hour, time.Hour}, {0, time.Minute}} {
		st.limitWaiting(&Location{SendTimeout: caddy.Duration(c.own)})
		if got := w.Deadline.Timeout; got != c.want {
			t.Errorf("in a location with send_timeout %v it is %v, want %v", c.own, got, c.want)
		}
	}
	(&state{r: r}).limitWaiting(&Location{SendTimeout: caddy.Duration(time.Second)}) // the server has no timeouts
}
