// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package evloop

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Handler is told that a descriptor is ready.
type Handler interface {
	// Ready is called on the loop's goroutine with events of epoll(7). It must not
	// block. It may be called once more after the descriptor was removed, if
	// that happened while the same batch of events was handled.
	Ready(events uint32)
}

// Readable are the events after which a read does not block, Writable those
// after which a write does not; both may end with an error then.
const (
	Readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLERR | unix.EPOLLHUP
	Writable = unix.EPOLLOUT | unix.EPOLLERR | unix.EPOLLHUP
)

// Interests to add a descriptor with.
const (
	// Edge reports everything, each time that it happens.
	Edge = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET
	// Level reports as long as there is something to read.
	Level = unix.EPOLLIN
	// None reports nothing but errors.
	None = 0
)

// Token names a descriptor that was added.
type Token struct{ slot, generation int32 }

// Loop is one goroutine that waits.
type Loop struct {
	epoll, wake int
	private     bool // has one holder

	mu     sync.Mutex // guards what follows
	slots  []slot
	free   []int32
	posted []func()
	ended  bool // is to end
	closed bool // has ended

	now   time.Time // when the loop was last woken; its goroutine's
	calm  int       // of the handlers called since, those that called Gather; likewise
	pace  pace      // likewise
	again []Handler // to be called before the loop waits; likewise
	spare []Handler
	run   []func()
}

// slot is a place for a descriptor's handler. The generation tells events of a
// descriptor from those of the one before it in the same place.
type slot struct {
	handler    Handler
	generation int32
}

// loops are those that run, while somebody holds one.
var loops struct {
	mu   sync.Mutex // guards what follows
	list []*Loop
	refs int
	next int
}

// count is the number of loops.
func count() int { return min(max(1, runtime.GOMAXPROCS(0)-1), 64) }

// Acquire returns a loop, the next one each time. It runs at least until its
// Release.
func Acquire() (*Loop, error) {
	loops.mu.Lock()
	defer loops.mu.Unlock()
	if loops.refs == 0 {
		list, err := start(count())
		if err != nil {
			return nil, err
		}
		loops.list = list
	}
	loops.refs++
	loops.next++
	return loops.list[loops.next%len(loops.list)], nil
}

// Private returns a loop of the caller's own, whose handlers may block. It runs
// until its Release.
func Private() (*Loop, error) {
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	l.private = true
	go l.serve()
	return l, nil
}

// Release gives a loop back. Nothing that was added to it must be left if it is
// the last.
func (l *Loop) Release() {
	if l.private {
		l.Post(nil)
		return
	}
	loops.mu.Lock()
	defer loops.mu.Unlock()
	if loops.refs--; loops.refs > 0 {
		return
	}
	for _, l := range loops.list {
		l.Post(nil)
	}
	loops.list = nil
}

func start(n int) ([]*Loop, error) {
	var list []*Loop
	for range n {
		l, err := newLoop()
		if err != nil {
			for _, l := range list {
				l.close()
			}
			return nil, err
		}
		list = append(list, l)
	}
	for _, l := range list {
		go l.serve()
	}
	return list, nil
}

func newLoop() (*Loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	l := &Loop{epoll: epoll, wake: wake, now: time.Now()}
	if _, err := l.Add(wake, Level, nil); err != nil { // slot 0
		l.close()
		return nil, err
	}
	return l, nil
}

// close ends the loop; what is posted from then on is lost.
func (l *Loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	_ = unix.Close(l.wake)
	_ = unix.Close(l.epoll)
}

// Add makes h be called when fd is ready. Events that are there already are
// reported, too. Any goroutine may call it; h may be called at once.
func (l *Loop) Add(fd int, interest uint32, h Handler) (Token, error) {
	l.mu.Lock()
	var n int32
	if last := len(l.free) - 1; last >= 0 {
		n = l.free[last]
		l.free = l.free[:last]
	} else {
		n = int32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	l.slots[n].handler = h
	t := Token{n, l.slots[n].generation}
	l.mu.Unlock()
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, t.event(interest)); err != nil {
		l.Remove(t)
		return Token{}, os.NewSyscallError("epoll_ctl", err)
	}
	return t, nil
}

// event is what the kernel keeps for a descriptor.
func (t Token) event(interest uint32) *unix.EpollEvent {
	return &unix.EpollEvent{Events: interest, Fd: t.slot, Pad: t.generation}
}

// Change sets what is reported of a descriptor.
func (l *Loop) Change(fd int, t Token, interest uint32) error {
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, fd, t.event(interest)); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Drop is Remove for a descriptor that is to stay open.
func (l *Loop) Drop(fd int, t Token) {
	l.Remove(t)
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
}

// Remove forgets the handler of a descriptor. The descriptor is the caller's to
// close, which takes it out of the kernel's list.
func (l *Loop) Remove(t Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.slots[t.slot]
	if s.generation != t.generation {
		return
	}
	s.handler = nil
	s.generation++
	l.free = append(l.free, t.slot)
}

// Post calls f on the loop's goroutine, soon. Any goroutine may call it.
// Without f it ends the loop.
func (l *Loop) Post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if f == nil {
		l.ended = true
	}
	if l.posted = append(l.posted, f); len(l.posted) > 1 {
		return // it has been woken for those
	}
	one := [8]byte{1}
	_, _ = unix.Write(l.wake, one[:]) // cannot fail before 2^64 of them
}

// Again calls h with no events after the others that are ready had their turn.
// The loop's goroutine only may call it.
func (l *Loop) Again(h Handler) { l.again = append(l.again, h) }

// Now is the time when the loop was last woken. The loop's goroutine only may
// call it.
func (l *Loop) Now() time.Time { return l.now }

// Gather says that what the handler that is being called has to do may wait a
// moment, for more of it to come. The loop's goroutine only may call it.
func (l *Loop) Gather() { l.calm++ }

// yieldAfter is how long a loop keeps its processor; see the package's comment.
// The scheduler takes it away after 10 ms.
const yieldAfter = 4 * time.Millisecond

func (l *Loop) serve() {
	defer l.close()
	events := make([]unix.EpollEvent, 128)
	yielded := time.Now()
	for {
		timeout := -1
		if len(l.again) > 0 {
			timeout = 0
		}
		n, err := unix.EpollWait(l.epoll, events, timeout)
		l.now = time.Now()
		if err != nil {
			n = 0 // EINTR: there is nothing else that it could be
		}
		woken := false
		l.calm = 0
		for i := range events[:n] {
			if e := &events[i]; e.Fd == 0 {
				woken = true
			} else if h := l.handler(Token{e.Fd, e.Pad}); h != nil {
				h.Ready(e.Events)
			}
		}
		if rest := l.pace.rest(l.now, n > 0 && l.calm == n && len(l.again) == 0); rest > 0 {
			sleep(rest)
		}
		again := l.again
		l.again = l.spare[:0]
		for i, h := range again {
			h.Ready(0)
			again[i] = nil
		}
		l.spare = again
		if woken && l.runPosted() {
			return
		}
		if l.now.Sub(yielded) > yieldAfter {
			yielded = l.now
			runtime.Gosched()
		}
	}
}

// handler is nil for a descriptor that was removed.
func (l *Loop) handler(t Token) Handler {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := &l.slots[t.slot]; s.generation == t.generation {
		return s.handler
	}
	return nil
}

// runPosted calls what was posted. True: the loop is to end.
func (l *Loop) runPosted() (end bool) {
	var b [8]byte
	_, _ = unix.Read(l.wake, b[:])
	l.mu.Lock()
	l.posted, l.run = l.run[:0], l.posted
	end = l.ended
	l.mu.Unlock()
	for i, f := range l.run {
		if f != nil {
			f()
		}
		l.run[i] = nil
	}
	return end
}
