// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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
	plain           bool // the front keeps nothing for a walk
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
	if !w.plain {
		walk.Extra = w
		w.begun.Add(1)
	}
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

// eachEnd runs f for every end, of walks that can be used again and of others.
func eachEnd(t *testing.T, f func(t *testing.T, plain bool, end func(*walker, *http.Request))) {
	for name, end := range ends {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/plain=%t", name, plain), func(t *testing.T) { f(t, plain, end) })
		}
	}
}

// TestEveryWalkEndsOnceWhereverTheClientLeaves cancels the request's context at
// any moment of any of the ways through a handler.
func TestEveryWalkEndsOnceWhereverTheClientLeaves(t *testing.T) {
	eachEnd(t, func(t *testing.T, plain bool, end func(*walker, *http.Request)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWalker(t, "a", "b")
			w.plain = plain
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

func TestEveryWalkEndsWithItsRequest(t *testing.T) {
	eachEnd(t, func(t *testing.T, plain bool, end func(*walker, *http.Request)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWalker(t, "a", "b")
			w.plain = plain
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

// list formats the record of a request.
func list(r *http.Request) string {
	rec := recordOf(r.Context())
	out := rec.names
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

// TestAWalkThatIsUsedAgainLeavesWhatItFound: only a plain end gives a walk back, and
// what other requests make of it changes nothing of the request before.
func TestAWalkThatIsUsedAgainLeavesWhatItFound(t *testing.T) {
	eachEnd(t, func(t *testing.T, plain bool, end func(*walker, *http.Request)) {
		w := newWalker(t, "a", "b")
		w.plain = plain
		again := plain && strings.HasSuffix(t.Name(), "/the_whole_response_is_read/plain=true")
		for range 50 {
			r := request(t.Context())
			w.pick(nil, r)
			_, try := Current(r)
			server := try.Lease.Peer().Name()
			end(w, r)
			if walk, _ := Current(r); (walk == nil) != again {
				t.Fatalf("the walk is used again: %t, want %t", walk == nil, again)
			}
			before := list(r)
			if !strings.HasPrefix(before, "walk"+server) {
				t.Fatalf("the record is %q, want group walk and server %s", before, server)
			}

			next := request(t.Context())
			w.pick(nil, next)
			_, current := Current(next)
			try.Abort() // late: the server was drained just before the end
			if !current.Begin() || current.Attempt.Aborted() {
				t.Fatal("the end of one request has aborted another")
			}
			current.Attempt.Start = time.Now().Add(-time.Hour)
			current.Attempt.Finished(time.Now())
			current.Answered(503)
			current.Ended(&current.Attempt, nil)
			if got := list(r); again && got != before {
				t.Fatalf("the record was %q and is %q", before, got)
			}
		}
	})
}

// TestAWalkWhoseEndMayStillBeToldIsNotUsedAgain: it has been registered with its
// context, whose end is told by a goroutine that nobody waits for.
func TestAWalkWhoseEndMayStillBeToldIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, "a", "b")
		w.plain = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := request(ctx)
		w.pick(nil, r)
		time.Sleep(2 * cancelwatch.Tick)
		synctest.Wait()
		ends["the whole response is read"](w, r)
		if walk, _ := Current(r); walk == nil {
			t.Error("the walk is used again")
		}
	})
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
	s.front = &walker{selector: s, plain: true}
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
