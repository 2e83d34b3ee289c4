// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

func TestOnlyHTTP3LeavesItsLimitsToUs(t *testing.T) {
	for _, c := range []struct {
		versions []string
		want     limits
	}{
		{[]string{"3"}, limits{1, 2, 3}},
		{[]string{"2"}, limits{}},
		{[]string{"h2c", "2"}, limits{}},
		{nil, limits{}},
	} {
		inner := &reverseproxy.HTTPTransport{Versions: c.versions, DialTimeout: 1, ResponseHeaderTimeout: 2, ReadTimeout: 3}
		if got := limitsOf(inner); got != c.want {
			t.Errorf("limitsOf() with versions %q = %v, want %v", c.versions, got, c.want)
		}
	}
}

func TestALimiterEndsWhatTakesTooLong(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		do     func(*limiter)
		aborts int
		op     string // that took too long
		sent   bool
	}{
		{"connecting", func(l *limiter) { l.next(connecting, l.connect); time.Sleep(2 * s) }, 1, connecting, false},
		{"connected in time", func(l *limiter) {
			l.next(connecting, l.connect)
			time.Sleep(s / 2)
			l.next("send request", 0)
			time.Sleep(9 * s)
		}, 0, "", false},
		{"header", func(l *limiter) {
			l.next(connecting, l.connect)
			l.next("send request", 0)
			l.sent()
			time.Sleep(4 * s)
		}, 1, "read header", true},
		{"header in time", func(l *limiter) { l.sent(); time.Sleep(2 * s); l.pause(); time.Sleep(9 * s) }, 0, "", false},
		{"a request that ends after its answer", func(l *limiter) { l.pause(); l.sent(); time.Sleep(9 * s) }, 0, "", false},
		{"nothing after what was too long", func(l *limiter) { l.next(connecting, l.connect); time.Sleep(2 * s); l.sent(); time.Sleep(9 * s) }, 1, connecting, false},
		{"no limits", func(l *limiter) { l.limits = limits{}; l.next(connecting, l.connect); l.sent(); time.Sleep(time.Hour) }, 0, "", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			aborts := 0
			l := &limiter{limits: limits{s, 3 * s, s}, abort: func() { aborts++ }}
			c.do(l)
			synctest.Wait()
			late := l.pause()
			if aborts != c.aborts {
				t.Errorf("%s: %d aborts, want %d", c.name, aborts, c.aborts)
			}
			if (late != nil) != (c.op != "") || late != nil && (late.Kind != exchange.TimedOut || late.Op != c.op || late.Sent != c.sent) {
				t.Errorf("%s: too long: %+v, want %q, sent %t", c.name, late, c.op, c.sent)
			}
		})
	}
}

// abortable is a body that has something to read each time something is put
// into it, and breaks off when it is aborted.
type abortable struct {
	parts   chan string
	aborted chan struct{}
}

func (b *abortable) Read(p []byte) (int, error) {
	select {
	case part, ok := <-b.parts:
		if !ok {
			return 0, io.EOF
		}
		return copy(p, part), nil
	case <-b.aborted:
		return 0, errors.New("aborted")
	}
}

func (b *abortable) Close() error { return nil }

func TestALimitOnReadsIsForEachOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &abortable{make(chan string), make(chan struct{})}
		l := &limiter{limits: limits{read: time.Second}, abort: func() { close(b.aborted) }}
		res := &http.Response{Body: b}
		l.guard(res)
		go func() {
			for range 5 {
				time.Sleep(900 * time.Millisecond)
				b.parts <- "x"
			}
		}()
		buf := make([]byte, 8)
		for i := range 5 {
			if n, err := res.Body.Read(buf); n != 1 || err != nil {
				t.Fatalf("Read() %d = %d, %v, want a byte", i, n, err)
			}
			time.Sleep(time.Hour) // the client takes its time
		}
		_, err := res.Body.Read(buf)
		if e, ok := errors.AsType[*exchange.Error](err); !ok || e.Kind != exchange.TimedOut || e.Op != "read body" {
			t.Errorf("Read() = %v, want the limit", err)
		}
	})
}
