// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package cancelwatch

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// job is work that counts how often it has been told of its end.
type job struct {
	Entry
	ctx  context.Context
	told atomic.Int32
}

func (j *job) Context() context.Context { return j.ctx }
func (j *job) Canceled()                { j.told.Add(1) }

func start(ctx context.Context, w *Watch) *job {
	j := &job{ctx: ctx}
	w.Add(&j.Entry, j)
	return j
}

func (j *job) expect(t *testing.T, when string, told int32) {
	t.Helper()
	synctest.Wait()
	if got := j.told.Load(); got != told {
		t.Errorf("%s: told %d times, want %d", when, got, told)
	}
}

func TestTheEndOfAContextIsToldOnce(t *testing.T) {
	for _, age := range []time.Duration{0, Tick / 2, Tick, 3 * Tick / 2, 2 * Tick, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var w Watch
			ctx, cancel := context.WithCancel(t.Context())
			j := start(ctx, &w)
			time.Sleep(age)
			j.expect(t, "before the end", 0)
			cancel()
			time.Sleep(2 * Tick)
			j.expect(t, "two ticks after the end", 1)
			time.Sleep(time.Minute)
			j.expect(t, "a minute after the end", 1)
			j.Stop()
		})
	}
}

func TestOldWorkIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		ctx, cancel := context.WithCancel(t.Context())
		j := start(ctx, &w)
		time.Sleep(2 * Tick)
		cancel()
		j.expect(t, "at the end", 1)
	})
}

func TestWorkThatIsDoneIsToldNothing(t *testing.T) {
	for _, age := range []time.Duration{0, Tick / 2, 3 * Tick / 2, 5 * Tick} {
		synctest.Test(t, func(t *testing.T) {
			var w Watch
			ctx, cancel := context.WithCancel(t.Context())
			first, j, last := start(ctx, &w), start(ctx, &w), start(ctx, &w)
			time.Sleep(age)
			alone := j.Stop()
			if want := age < 2*Tick; alone != want || j.Stop() {
				t.Errorf("Stop() = %t after %v, want %t, and then false", alone, age, want)
			}
			cancel()
			time.Sleep(3 * Tick)
			first.expect(t, "added before it", 1)
			j.expect(t, "stopped", 0)
			last.expect(t, "added after it", 1)
		})
	}
}

func TestAnEntryThatWasNeverAddedCanBeStopped(t *testing.T) {
	new(Entry).Stop()
}

func TestAWatchWithoutWorkSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		awake := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.armed
		}
		for range 2 {
			j := start(t.Context(), &w)
			if !awake() {
				t.Error("asleep with new work")
			}
			time.Sleep(5 * Tick) // it is registered now, and needs no ticks
			if awake() {
				t.Error("awake although nothing is listed")
			}
			j.Stop()
		}
	})
}

// Under -race: work begins, ends and is cancelled from many goroutines.
func TestWorkMayEndAtAnyTime(t *testing.T) {
	var w Watch
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				j := start(ctx, &w)
				one, two := time.Duration(r.IntN(int(Tick/4))), time.Duration(r.IntN(int(Tick/4)))
				switch r.IntN(3) {
				case 0:
					time.Sleep(one)
					j.Stop()
					cancel()
				case 1:
					cancel()
					time.Sleep(one)
					j.Stop()
				default:
					wg.Go(func() { time.Sleep(one); cancel() })
					wg.Go(func() { time.Sleep(two); j.Stop() })
				}
				if n := j.told.Load(); n > 1 {
					t.Errorf("told %d times", n)
				}
			}
		})
	}
	wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lists[0].first != nil || w.lists[1].first != nil {
		t.Error("work that has ended is still listed")
	}
}

func BenchmarkAddStop(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("watch", func(b *testing.B) {
		b.ReportAllocs()
		var w Watch
		for b.Loop() {
			j := job{ctx: ctx}
			w.Add(&j.Entry, &j)
			j.Stop()
		}
	})
	b.Run("AfterFunc", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			j := job{ctx: ctx}
			context.AfterFunc(ctx, j.Canceled)()
		}
	})
}
