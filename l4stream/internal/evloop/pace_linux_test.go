// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package evloop

import (
	"testing"
	"time"
)

func TestOnlyALoopThatIsBusyWithWhatMayWaitRests(t *testing.T) {
	for _, tt := range []struct {
		what  string
		every time.Duration
		calm  func(turn int) bool
		rests bool
	}{
		{"woken for each of many datagrams", 20 * time.Microsecond, func(int) bool { return true }, true},
		{"resting already", gatherTime + 50*time.Microsecond, func(int) bool { return true }, true},
		{"woken now and then", time.Millisecond, func(int) bool { return true }, false},
		{"long turns", 2 * busyTurn, func(int) bool { return true }, false},
		{"busy with what may not wait", 20 * time.Microsecond, func(int) bool { return false }, false},
	} {
		var p pace
		now := time.Now()
		for turn := range 10 {
			rest := p.rest(now, tt.calm(turn))
			if want := tt.rests && turn > 0; (rest > 0) != want {
				t.Errorf("%s: rests %v after turn %d, want a rest: %v", tt.what, rest, turn, want)
			}
			if rest > 50*time.Microsecond {
				t.Errorf("%s: rests %v, which clients would notice", tt.what, rest)
			}
			now = now.Add(tt.every)
		}
	}
}

func TestOneThatMayNotWaitIsEnoughForALoopNotToRest(t *testing.T) {
	var p pace
	now := time.Now()
	for turn := range 10 {
		calm := turn != 5
		if rest := p.rest(now, calm); (rest > 0) != (calm && turn > 0) {
			t.Errorf("turn %d: rests %v", turn, rest)
		}
		now = now.Add(10 * time.Microsecond)
	}
}
