// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func probeOf(key string, interval time.Duration, ask func(context.Context) error) probe {
	return probe{key: key, interval: interval, timeout: time.Second, ask: ask}
}

func well(context.Context) error { return nil }

func TestAProbeIsAskedAtOnceAndThenOnceInEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler()
		var asked atomic.Int32
		stop := s.subscribe(probeOf("a", 5*time.Second, func(context.Context) error { asked.Add(1); return nil }), func(result) {})
		for i := range 4 {
			synctest.Wait()
			if got := asked.Load(); got != int32(i+1) {
				t.Errorf("asked %d times after %v, want %d", got, time.Duration(i)*5*time.Second, i+1)
			}
			time.Sleep(5 * time.Second)
		}
		stop() // and the bubble ends when the goroutine has
	})
}

func TestEqualProbesAreAskedOnceForAllWhoWantThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler()
		var asked, first, second atomic.Int32
		p := probeOf("a", time.Second, func(context.Context) error { asked.Add(1); return nil })
		stopFirst := s.subscribe(p, func(result) { first.Add(1) })
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		stopSecond := s.subscribe(p, func(result) { second.Add(1) })
		if got := second.Load(); got != 1 {
			t.Errorf("who joins got %d results, want the last one at once", got)
		}
		time.Sleep(2 * time.Second)
		stopFirst()
		time.Sleep(2 * time.Second)
		stopSecond()
		if asked.Load() != 5 || first.Load() != 3 || second.Load() != 5 {
			t.Errorf("asked %d times, %d and %d results, want 5, 3 and 5", asked.Load(), first.Load(), second.Load())
		}
	})
}

func TestAFreshSubscriptionWaitsForACheckOfItsOwnThatComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler()
		p := probeOf("a", time.Minute, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
		defer s.subscribe(p, func(result) {})()
		time.Sleep(time.Second)
		fresh := p
		fresh.fresh = true
		begun := time.Now()
		var results []result
		var mu sync.Mutex
		for range 2 { // the second while the first is under way
			defer s.subscribe(fresh, func(r result) {
				mu.Lock()
				defer mu.Unlock()
				results = append(results, r)
			})()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(results) != 3 || results[0].began.Before(begun) {
			t.Errorf("%d results, the first began %v after the subscription, want 3 that began later", len(results), results[0].began.Sub(begun))
		}
	})
}

func TestAProbeThatHangsDelaysNobodyAndEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler()
		var asked atomic.Int32
		var hung atomic.Int32
		stopHanging := s.subscribe(probeOf("hangs", 500*time.Millisecond, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}), func(r result) {
			if errors.Is(r.err, context.DeadlineExceeded) {
				hung.Add(1)
			}
		})
		stop := s.subscribe(probeOf("a", 500*time.Millisecond, func(context.Context) error { asked.Add(1); return nil }), func(result) {})
		time.Sleep(5*time.Second - 10*time.Millisecond)
		if got := asked.Load(); got != 10 {
			t.Errorf("the other was asked %d times in 5s, want 10", got)
		}
		if got := hung.Load(); got < 3 {
			t.Errorf("%d timeouts in 5s, want three or more", got)
		}
		stopHanging()
		stop()
	})
}

func TestStopEndsACheckThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler()
		var ended, told atomic.Bool
		stop := s.subscribe(probeOf("a", time.Hour, func(ctx context.Context) error {
			<-ctx.Done()
			ended.Store(true)
			return ctx.Err()
		}), func(result) { told.Store(true) })
		synctest.Wait()
		stop()
		synctest.Wait()
		if !ended.Load() || told.Load() {
			t.Errorf("ended %t, told %t, want true, false", ended.Load(), told.Load())
		}
		stop() // once more does nothing
	})
}

func TestTenThousandServersAreSpreadOverTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler()
		const n, interval = 10_000, 5 * time.Second
		var mu sync.Mutex
		perSlot := map[int64]int{}
		start := time.Now()
		var stops []func()
		for i := range n {
			stops = append(stops, s.subscribe(probeOf(fmt.Sprint(i), interval, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				perSlot[time.Since(start).Milliseconds()/100]++
				return nil
			}), func(result) {}))
		}
		time.Sleep(3*interval - time.Nanosecond)
		mu.Lock()
		if len(perSlot) != 150 {
			t.Errorf("checks in %d of 150 slots of 100 ms", len(perSlot))
		}
		for slot, got := range perSlot {
			if got != n/50 {
				t.Errorf("%d checks in slot %d, want %d in each", got, slot, n/50)
			}
		}
		mu.Unlock()
		for _, stop := range stops {
			stop()
		}
	})
}

func TestJitterIsAddedToTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler()
		p := probeOf("a", time.Second, well)
		p.jitter = time.Second
		var at []time.Time
		var mu sync.Mutex
		stop := s.subscribe(p, func(r result) { mu.Lock(); at = append(at, r.began); mu.Unlock() })
		time.Sleep(5 * time.Minute)
		stop()
		distances := map[time.Duration]bool{}
		for i := 1; i < len(at); i++ {
			d := at[i].Sub(at[i-1])
			distances[d] = true
			if d < time.Second || d >= 2*time.Second {
				t.Errorf("%v between two checks, want 1s to 2s", d)
			}
		}
		if len(distances) < 50 {
			t.Errorf("%d different distances, want many", len(distances))
		}
	})
}
