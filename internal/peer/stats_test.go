// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEveryTimeIsInTheBucketWhoseBoundsHoldIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 1<<rapid.IntRange(1, 62).Draw(t, "bits")).Draw(t, "d"))
		i := bucketOf(d)
		if d >= bound(i) || i > 0 && d < bound(i-1) {
			t.Fatalf("bucketOf(%d) = %d, from %d to %d", d, i, bound(max(0, i-1)), bound(i))
		}
	})
	if bucketOf(-1) != 0 || bucketOf(1<<62) != buckets-1 {
		t.Error("times beyond the buckets are not in the first and the last")
	}
	for i := range buckets - 2 {
		if bound(i) >= bound(i+1) {
			t.Errorf("bound(%d) = %d, bound(%d) = %d", i, bound(i), i+1, bound(i+1))
		}
	}
}

func TestQuantilesAreRightWithinABucket(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var h Histogram
	var all []time.Duration
	var sum time.Duration
	for range 5000 {
		d := time.Duration(rand.ExpFloat64() * float64(20*time.Millisecond))
		all = append(all, d)
		sum += d
		h.Record(d, now)
	}
	slices.Sort(all)
	got, ok := h.Window(now)
	if !ok || got.Count != 5000 || got.Mean != sum/5000 {
		t.Fatalf("Window() = %+v, %v, want 5000 times of %v on average", got, ok, sum/5000)
	}
	for _, q := range []struct {
		got  time.Duration
		want time.Duration
	}{{got.P50, all[2500]}, {got.P90, all[4500]}, {got.P99, all[4950]}} {
		if r := float64(q.got) / float64(q.want); r < 0.8 || r > 1.25 {
			t.Errorf("quantile %v, want about %v", q.got, q.want)
		}
	}
	count, total, below := h.Total(Limits())
	if count != 5000 || total != sum || !slices.IsSorted(below) || below[len(below)-1] != 5000 {
		t.Errorf("Total() = %d, %v, %v", count, total, below)
	}
	for i, limit := range Limits() {
		n, _ := slices.BinarySearch(all, limit)
		if uint64(n) != below[i] {
			t.Errorf("%d times below %v, want %d", below[i], limit, n)
		}
	}
}

func TestTheWindowForgetsAfterAMinute(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var h Histogram
	h.Record(time.Second, now)
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {49 * time.Second, true}, {60 * time.Second, false}, {time.Hour, false}} {
		if _, ok := h.Window(now.Add(c.after)); ok != c.want {
			t.Errorf("%v later: ok = %v, want %v", c.after, ok, c.want)
		}
	}
	h.Record(time.Millisecond, now.Add(time.Minute)) // the same slot
	if got, ok := h.Window(now.Add(time.Minute)); !ok || got.Count != 1 || got.Mean != time.Millisecond {
		t.Errorf("the slot was not cleared: %+v", got)
	}
	if count, _, _ := h.Total(nil); count != 2 {
		t.Errorf("%d times in all, want 2", count)
	}
	if _, ok := (*Histogram)(nil).Window(now); ok {
		t.Error("no histogram has times")
	}
}

func TestNoTimeIsLostInTheTotal(t *testing.T) {
	var s Stats
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				Record(&s.Response, time.Duration(j)*time.Millisecond, time.Unix(int64(i*1000+j), 0))
				s.Answered(100 + j%600)
			}
		})
	}
	wg.Wait()
	if count, _, _ := s.Response.Load().Total(nil); count != 8000 {
		t.Errorf("%d times, want 8000", count)
	}
	var answers uint64
	for i := range s.Responses {
		answers += s.Responses[i].Load()
	}
	if answers != 8*900 { // 1xx to 5xx; 600 and more are no class
		t.Errorf("%d answers, want %d", answers, 8*900)
	}
}

func BenchmarkRecord(b *testing.B) {
	b.ReportAllocs()
	var s Stats
	now := time.Unix(1_700_000_000, 0)
	for b.Loop() {
		Record(&s.Response, 3*time.Millisecond, now)
	}
}
