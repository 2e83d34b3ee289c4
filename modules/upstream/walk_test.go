// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/cancelwatch"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// walker makes walks over two servers, as the policies do.
type walker struct {
	*selector
	begun, released atomic.Int64
}

func newWalker(t *testing.T, servers ...string) *walker {
	t.Helper()
	r := held(t, "walk")
	if err := r.push(testGeneration(servers...), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	w := &walker{selector: newSelector(r, zap.NewNop())}
	w.front = w
	return w
}

func (w *walker) RoundTrip(*http.Request) (*http.Response, error) { panic("not called") }
func (w *walker) BindGroup(Binding) error                         { return nil }
func (w *walker) SessionTries() int                               { return 0 }
func (w *walker) Release()                                        { w.released.Add(1) }

func (w *walker) Prepare(walk *Walk, _ *http.Request) error {
	walk.Extra = w
	w.begun.Add(1)
	return nil
}

// request is one as a handler of Caddy's gets it.
func request(ctx context.Context) *http.Request {
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), &caddyhttp.Server{})
}

// atRest fails the test unless every lease has ended and every walk has been
// released once.
func (w *walker) atRest(t *testing.T) {
	t.Helper()
	for _, s := range w.runtime.group.Snapshot(time.Now()) {
		if s.Conns != 0 {
			t.Errorf("server %s holds %d leases, want 0", s.Server.ID, s.Conns)
		}
	}
	if b, r := w.begun.Load(), w.released.Load(); b != r {
		t.Errorf("%d walks have begun and %d were released", b, r)
	}
}

// ends are the ways in which a handler goes on after Select, up to the return
// of its ServeHTTP.
var ends = map[string]func(w *walker, r *http.Request){
	"Caddy stops before the round trip": func(*walker, *http.Request) {},
	"the whole response is read": func(_ *walker, r *http.Request) {
		if _, t := Current(r); t.Begin() {
			t.Attempt.Ender = t
			t.Answered(200)
			t.Ended(&t.Attempt, nil)
		}
	},
	"the response has ended before it is looked at": func(_ *walker, r *http.Request) {
		if _, t := Current(r); t.Begin() {
			t.Ended(&t.Attempt, nil)
			t.Answered(200)
		}
	},
	"a panic while the response is read": func(_ *walker, r *http.Request) {
		if _, t := Current(r); t.Begin() {
			t.Answered(200)
		}
	},
	"a panic in the transport": func(_ *walker, r *http.Request) {
		if _, t := Current(r); t.Begin() {
			defer func() { _ = recover() }()
			defer t.Unwind()
			panic("transport")
		}
	},
	"the last try fails": func(_ *walker, r *http.Request) {
		if w, t := Current(r); t.Begin() {
			t.Fail(502, nil)
			t.Finish(peer.Failed, time.Now())
			w.End()
		}
	},
	"Caddy stops before the second try": func(_ *walker, r *http.Request) {
		if _, t := Current(r); t.Begin() {
			t.Finish(peer.Failed, time.Now())
		}
	},
	"Caddy stops within the second try": func(w *walker, r *http.Request) {
		if _, t := Current(r); t.Begin() {
			t.Finish(peer.Failed, time.Now())
			w.pick(nil, r)
		}
	},
	"the second try answers": func(w *walker, r *http.Request) {
		if _, t := Current(r); t.Begin() {
			t.Finish(peer.Failed, time.Now())
			w.pick(nil, r)
			if _, t := Current(r); t.Begin() {
				t.Answered(200)
				t.Ended(&t.Attempt, nil)
			}
		}
	},
	"no server is left": func(w *walker, r *http.Request) {
		for range 3 {
			if _, t := Current(r); t.Lease != nil && t.Begin() {
				t.Finish(peer.Failed, time.Now())
				w.pick(nil, r)
			}
		}
	},
}

// TestEveryWalkEndsOnceWhereverTheClientLeaves cancels the request's context at
// any moment of any of the ways through a handler.
func TestEveryWalkEndsOnceWhereverTheClientLeaves(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWalker(t, "a", "b")
				for i := range 600 {
					ctx, cancel := context.WithCancel(t.Context())
					r := request(ctx)
					var wg sync.WaitGroup
					leave := func() {
						for range i % 40 { // a different moment each time
							_ = fmt.Sprint(i)
						}
						cancel()
					}
					if i%2 == 0 { // from the pick on
						wg.Go(leave)
					}
					if w.pick(nil, r) == nil {
						t.Fatal("pick() = nil")
					}
					if i%2 != 0 { // from a time on when its end is told at once
						time.Sleep(2 * cancelwatch.Tick)
						wg.Go(leave)
					}
					end(w, r)
					list(r) // as the access log does
					wg.Wait()
				}
				time.Sleep(2 * cancelwatch.Tick)
				synctest.Wait()
				w.atRest(t)
			})
		})
	}
}

func TestEveryWalkEndsWithItsRequest(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWalker(t, "a", "b")
				ctx, cancel := context.WithCancel(t.Context())
				r := request(ctx)
				w.pick(nil, r)
				end(w, r)
				cancel() // the server does when the handler has returned
				time.Sleep(2 * cancelwatch.Tick)
				synctest.Wait()
				w.atRest(t)
			})
		})
	}
}

// list formats the record of a request.
func list(r *http.Request) string {
	rec := recordOf(r.Context())
	out := rec.names()
	for _, v := range values {
		out += rec.list(v.format)
	}
	return out
}

func TestAClientThatHasLeftIsNotSentAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := request(ctx)
		w.pick(nil, r)
		synctest.Wait()
		if _, try := Current(r); try.Begin() {
			t.Error("Begin() = true for a client that has left")
		}
		w.atRest(t)
	})
}

func TestTwoHandlersOfOneRequestKeepTheirWalksApart(t *testing.T) {
	w := newWalker(t, "a", "b")
	first := request(t.Context())
	second := first.WithContext(first.Context()) // another handler's clone
	w.pick(nil, first)
	one, tryOne := Current(first)
	tryOne.Begin()
	w.pick(nil, second)
	two, tryTwo := Current(second)
	if one == two || tryOne == tryTwo {
		t.Fatal("the second handler continues the walk of the first")
	}
	tryTwo.Begin()
	for _, try := range []*Try{tryOne, tryTwo} {
		try.Answered(200)
		try.Ended(new(exchange.Attempt), nil)
	}
	if got, want := list(first), "walk : walk"; got[:len(want)] != want {
		t.Errorf("record %q, want two walks", got)
	}
	w.atRest(t)
}

// BenchmarkSelect is a walk of one try, with the request's context and replacer.
func BenchmarkSelect(b *testing.B) {
	r, err := acquire(runtimeKey{name: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.release() }()
	if err := r.push(testGeneration("a", "b", "c"), zap.NewNop()); err != nil {
		b.Fatal(err)
	}
	s := newSelector(r, zap.NewNop())
	base := request(b.Context())
	vars := base.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	repl := base.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	b.ReportAllocs()
	for b.Loop() {
		delete(vars, recordKey)
		*repl = *caddy.NewEmptyReplacer()
		ctx, cancel := context.WithCancel(base.Context())
		q := base.WithContext(ctx)
		s.pick(nil, q)
		_, t := Current(q)
		t.Begin()
		t.Answered(200)
		t.Ended(&t.Attempt, nil)
		cancel()
	}
}
