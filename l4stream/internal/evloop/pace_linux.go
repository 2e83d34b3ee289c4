// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package evloop

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// gatherTime is how long a loop leaves what comes to gather.
	gatherTime = 30 * time.Microsecond
	// busyTurn is the time between two turns of a loop that is in a hurry. A loop
	// whose turns take longer has enough to do in each.
	busyTurn = 250 * time.Microsecond
)

// pace decides when a loop rests, as network cards do with their interrupts: a
// loop that is woken for each datagram spends more on waking, and on system calls
// for one datagram, than on the datagrams. One that is woken now and then never
// rests, nor does one that has anything to do that may not wait.
type pace struct{ last time.Time }

// rest returns how long to rest after a turn that began at now. calm: all that
// there was to do may wait.
func (p *pace) rest(now time.Time, calm bool) time.Duration {
	since := now.Sub(p.last)
	p.last = now
	if !calm || since > busyTurn {
		return 0
	}
	return gatherTime
}

// sleep lets the thread sleep for a few microseconds. Without its slack set the
// kernel would add up to 50 of them.
func sleep(d time.Duration) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Microsecond), 0, 0, 0)
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
