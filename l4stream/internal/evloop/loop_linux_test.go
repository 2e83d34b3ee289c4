// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package evloop

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// ready is a handler that passes its events on.
type ready chan uint32

func (r ready) Ready(events uint32) { r <- events }

// call is a handler that is a function.
type call func(events uint32)

func (c call) Ready(events uint32) { c(events) }

func acquire(t *testing.T) *Loop {
	t.Helper()
	l, err := Acquire()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Release)
	return l
}

// socketPair returns two connected sockets that do not block.
func socketPair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func add(t *testing.T, l *Loop, fd int, interest uint32, h Handler) Token {
	t.Helper()
	token, err := l.Add(fd, interest, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Remove(token) })
	return token
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing has come")
		panic("unreachable")
	}
}

// settled returns when the loop has called what was ready before.
func settled(t *testing.T, l *Loop) {
	t.Helper()
	for range 2 {
		done := make(chan struct{})
		l.Post(func() { close(done) })
		receive(t, done)
	}
}

func write(t *testing.T, fd int, text string) {
	t.Helper()
	if n, err := unix.Write(fd, []byte(text)); err != nil || n != len(text) {
		t.Fatalf("write = %d, %v", n, err)
	}
}

func TestADescriptorThatIsReadyIsReportedOnceForEachEvent(t *testing.T) {
	l := acquire(t)
	a, b := socketPair(t)
	r := make(ready, 10)
	add(t, l, a, Edge, r)
	if e := receive(t, r); e != unix.EPOLLOUT {
		t.Errorf("events %#x of a fresh socket, want %#x", e, unix.EPOLLOUT)
	}
	write(t, b, "x")
	if e := receive(t, r); e&Readable != unix.EPOLLIN {
		t.Errorf("events %#x with a byte to read, want %#x", e, unix.EPOLLIN)
	}
	settled(t, l) // the byte is still there, and not reported again
	if len(r) > 0 {
		t.Errorf("events %#x without anything new", <-r)
	}
	_ = unix.Shutdown(b, unix.SHUT_WR)
	if e := receive(t, r); e&unix.EPOLLRDHUP == 0 {
		t.Errorf("events %#x at the end, want %#x among them", e, unix.EPOLLRDHUP)
	}
}

func TestALevelIsReportedUntilItIsChanged(t *testing.T) {
	l := acquire(t)
	a, b := socketPair(t)
	calls := make(chan struct{}, 10)
	var token Token
	added := make(chan struct{})
	n := 0
	l.Post(func() {
		defer close(added)
		token = add(t, l, a, Level, call(func(uint32) {
			if n++; n == 3 {
				if err := l.Change(a, token, None); err != nil {
					t.Error(err)
				}
			}
			calls <- struct{}{}
		}))
	})
	receive(t, added)
	write(t, b, "x")
	for range 3 {
		receive(t, calls)
	}
	settled(t, l)
	if len(calls) > 0 {
		t.Error("reported after there was no interest")
	}
}

func TestARemovedDescriptorIsNotReportedAndItsPlaceIsAnothers(t *testing.T) {
	l := acquire(t)
	a, b := socketPair(t)
	c, d := socketPair(t)
	old, fresh := make(ready, 10), make(ready, 10)
	const input = unix.EPOLLIN | unix.EPOLLET
	token := add(t, l, a, input, old)
	l.Remove(token)
	l.Remove(token) // does nothing
	if again := add(t, l, c, input, fresh); again.slot != token.slot {
		t.Errorf("slot %d, want %d, which is free", again.slot, token.slot)
	}
	write(t, b, "x") // the kernel still knows it
	settled(t, l)
	if len(old)+len(fresh) > 0 {
		t.Error("a descriptor that was removed is reported")
	}
	write(t, d, "x")
	receive(t, fresh)
}

func TestWhatIsPostedFromAnywhereIsCalledInOrderOnOneGoroutine(t *testing.T) {
	l := acquire(t)
	const senders, each = 8, 500
	var next [senders]int // no lock: the race detector would see a second goroutine
	done := make(chan struct{}, senders)
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for n := range each {
				l.Post(func() {
					if next[i] != n {
						t.Errorf("call %d of sender %d came as number %d", n, i, next[i])
					}
					if next[i]++; next[i] == each {
						done <- struct{}{}
					}
				})
			}
		})
	}
	wg.Wait()
	for range senders {
		receive(t, done)
	}
}

func TestWhatWantsAnotherTurnLetsOthersHaveTheirs(t *testing.T) {
	l := acquire(t)
	a, b := socketPair(t)
	ended := make(chan int, 1)
	turns, served := 0, false
	var busy call
	busy = func(events uint32) {
		if events != 0 {
			t.Errorf("events %#x in a further turn, want none", events)
		}
		if turns++; turns == 1 {
			write(t, b, "x") // now another is ready
		}
		if served {
			ended <- turns
			return
		}
		l.Again(busy)
	}
	l.Post(func() {
		add(t, l, a, Level, call(func(uint32) { served = true; _, _ = unix.Read(a, make([]byte, 1)) }))
		l.Again(busy)
	})
	if n := receive(t, ended); n > 3 {
		t.Errorf("the other had its turn after %d", n)
	}
}

func TestADescriptorThatIsDroppedStaysOpenAndGoesToAnotherLoop(t *testing.T) {
	l := acquire(t)
	own, err := Private()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Release()
	a, b := socketPair(t)
	first, second := make(ready, 10), make(ready, 10)
	const input = unix.EPOLLIN | unix.EPOLLET
	token := add(t, l, a, input, first)
	write(t, b, "x")
	receive(t, first)
	l.Drop(a, token)
	add(t, own, a, input, second)
	receive(t, second) // of the byte that is there
	write(t, b, "y")
	receive(t, second)
	settled(t, l)
	if len(first) > 0 {
		t.Error("the loop that dropped it reports it")
	}
}

func TestALoopOfOnesOwnEndsWithItsRelease(t *testing.T) {
	a, err := Private()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Private()
	if err != nil {
		t.Fatal(err)
	}
	if a == b {
		t.Error("two holders have one loop")
	}
	a.Release()
	b.Release() // goleak sees whether they end
}

func TestLoopsEndWithTheirLastHolder(t *testing.T) {
	var held []*Loop
	for range 2*count() + 1 {
		l, err := Acquire()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	if held[0] != held[count()] || count() > 1 && held[0] == held[1] {
		t.Error("loops are not given out in turn")
	}
	for _, l := range held {
		l.Release()
	}
	closed := func(l *Loop) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.closed
	}
	for _, l := range held {
		for deadline := time.Now().Add(patience); !closed(l); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a loop goes on that nobody holds")
			}
		}
	}
	held[0].Post(func() { t.Error("called on a loop that has ended") })
	if l := acquire(t); l == held[0] {
		t.Error("a loop that has ended is given out")
	}
}
