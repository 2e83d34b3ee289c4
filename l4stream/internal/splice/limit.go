// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import "time"

// limiter computes how fast one direction may read. It keeps whole seconds of
// the wall clock, as nginx does, and never looks at a clock itself.
type limiter struct {
	rate  int64 // bytes per second; 0 is no limit
	start int64 // the second in which the session began
	// next is when the pause after the last read is over.
	next time.Time
}

// before returns how many bytes may be read at now, if read bytes were so far;
// if none, how long to wait before asking again.
func (l *limiter) before(now time.Time, read int64) (allowed int64, wait time.Duration) {
	if pause := l.next.Sub(now); pause > 0 {
		return 0, pause
	}
	allowed = l.rate*(now.Unix()-l.start+1) - read
	if allowed <= 0 {
		return 0, milliseconds(-allowed, l.rate) + time.Millisecond
	}
	return allowed, 0
}

// after notes that n bytes were read at now.
func (l *limiter) after(now time.Time, n int64) {
	l.next = now.Add(milliseconds(n, l.rate))
}

// milliseconds is how long n bytes take, cut to whole milliseconds. The parts
// are multiplied separately so that no count of bytes overflows.
func milliseconds(n, rate int64) time.Duration {
	whole, rest := n/rate, n%rate
	if rate > 1<<50 {
		return time.Duration(whole) * time.Second
	}
	return time.Duration(whole)*time.Second + time.Duration(rest*1000/rate)*time.Millisecond
}
