// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"math"
	"testing"
	"time"
)

func TestARateAllowsWholeSecondsFromTheStart(t *testing.T) {
	const ms = time.Millisecond
	start := time.Unix(1000, int64(900*ms)) // late in its second
	for _, c := range []struct {
		at      time.Duration
		rate    int64
		read    int64
		allowed int64
		wait    time.Duration
	}{
		{0, 1000, 0, 1000, 0},          // the whole of the second begun
		{50 * ms, 1000, 400, 600, 0},   // what is left of it
		{100 * ms, 1000, 400, 1600, 0}, // the next second begins
		{0, 1000, 1000, 0, 1 * ms},     // used up
		{0, 1000, 1500, 0, 501 * ms},   // 500 too many
		{0, 3, 5, 0, 667 * ms},         // cut, and one more
		{3 * time.Second, 10, 0, 40, 0},
		{0, math.MaxInt64, math.MaxInt64, 0, 1 * ms},
	} {
		l := limiter{rate: c.rate, start: start.Unix()}
		allowed, wait := l.before(start.Add(c.at), c.read)
		if allowed != c.allowed || wait != c.wait {
			t.Errorf("rate %d, %d read, at %v: before() = %d, %v, want %d, %v", c.rate, c.read, c.at, allowed, wait, c.allowed, c.wait)
		}
	}
}

func TestAReadIsFollowedByThePauseItTakes(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		rate, n int64
		pause   time.Duration
	}{
		{1000, 500, 500 * time.Millisecond},
		{1000, 1, time.Millisecond},
		{3000, 1, 0}, // less than a millisecond is nothing
		{3, 10, 3333 * time.Millisecond},
		{1 << 62, 1 << 20, 0},
	} {
		l := limiter{rate: c.rate, start: now.Unix()}
		l.after(now, c.n)
		if _, wait := l.before(now, 0); wait != c.pause {
			t.Errorf("rate %d, read %d: pause %v, want %v", c.rate, c.n, wait, c.pause)
		}
		if allowed, wait := l.before(now.Add(c.pause), 0); allowed <= 0 || wait != 0 {
			t.Errorf("rate %d, read %d: after the pause before() = %d, %v", c.rate, c.n, allowed, wait)
		}
	}
}
