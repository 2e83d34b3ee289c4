// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// probe is one thing that is asked again and again. Equal probes of several
// groups are asked once.
type probe struct {
	// key names the probe: the server's address and the whole configuration
	// of the check.
	key      string
	interval time.Duration
	jitter   time.Duration
	timeout  time.Duration
	// ask returns nil if the server is well.
	ask func(ctx context.Context) error
	// fresh: results of checks that began before the subscription do not count.
	fresh bool
}

// result is what one check found.
type result struct {
	began time.Time
	err   error // nil: the server is well
}

// scheduler asks all probes of this process. One goroutine waits for the next
// that is due and starts it; it runs while there is any.
type scheduler struct {
	mu      sync.Mutex // guards everything
	entries map[string]*entry
	due     dueHeap
	wake    chan struct{} // buffered: the head of due may have changed
	running bool
	waiting int // entries that have not been asked yet
	// The row of first checks: when it began, and how many there are in it.
	rowBegan time.Time
	inRow    int
	lastID   int
	now      func() time.Time
}

// entry is a probe with those who want its results.
type entry struct {
	probe
	next        time.Time
	began       time.Time
	place       int // in the heap
	asking      bool
	again       bool // ask at once after this one
	ended       bool
	asked       bool
	cancel      context.CancelFunc
	subscribers map[int]subscriber
	last        result
}

type subscriber struct {
	since time.Time // results of checks that began before do not count
	f     func(result)
}

// spread is the distance at which first checks follow each other, so that a
// configuration with thousands of servers does not start with thousands of
// connections at once; within the interval all the same, and evenly, since later
// checks keep the distance.
const spread = time.Millisecond

func newScheduler() *scheduler {
	return &scheduler{entries: map[string]*entry{}, wake: make(chan struct{}, 1), now: time.Now}
}

// subscribe begins, or joins, a probe. f is called with each result, and at once
// with the last one if there is one, from any goroutine; the order is that in
// which the checks began, but for that first call. A result that is under way
// when stop is called may still come.
func (s *scheduler) subscribe(p probe, f func(result)) (stop func()) {
	id, e, last := s.add(p, f)
	if !last.began.IsZero() {
		f(last)
	}
	return func() { s.unsubscribe(e, id) }
}

// add returns the last result if it counts.
func (s *scheduler) add(p probe, f func(result)) (id int, e *entry, last result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	sub := subscriber{f: f}
	if p.fresh {
		sub.since = now
	}
	e = s.entries[p.key]
	switch {
	case e == nil:
		e = &entry{probe: p, next: s.firstLocked(now, p.interval), subscribers: map[int]subscriber{}}
		s.waiting++
		s.entries[p.key] = e
		s.push(e)
	case p.fresh && e.asking:
		e.again = true
	case p.fresh:
		s.due.remove(e)
		e.next = now
		s.push(e)
	default:
		last = e.last
	}
	s.lastID++
	e.subscribers[s.lastID] = sub
	if !s.running {
		s.running = true
		go s.run()
	}
	return s.lastID, e, last
}

// firstLocked is when a new probe is asked first: in a row with those that wait
// for their first check, or have just had it.
func (s *scheduler) firstLocked(now time.Time, interval time.Duration) time.Time {
	if s.waiting == 0 && !now.Before(s.rowBegan.Add(time.Duration(s.inRow)*spread)) {
		s.rowBegan, s.inRow = now, 0
	}
	first := s.rowBegan.Add(time.Duration(s.inRow) * spread % interval)
	s.inRow++
	if first.Before(now) {
		return now
	}
	return first
}

func (s *scheduler) unsubscribe(e *entry, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(e.subscribers, id)
	if len(e.subscribers) > 0 || e.ended {
		return
	}
	e.ended = true
	delete(s.entries, e.key)
	if !e.asked {
		s.waiting--
	}
	if e.asking {
		e.cancel()
	} else {
		s.due.remove(e)
	}
	if len(s.entries) == 0 {
		s.poke()
	}
}

// push files e, and wakes the goroutine if it is due before all others.
func (s *scheduler) push(e *entry) {
	s.due.push(e)
	if e.place == 0 {
		s.poke()
	}
}

// poke makes the goroutine look again.
func (s *scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run starts what is due until no probe is left.
func (s *scheduler) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, ok := s.startDue()
		if !ok {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// startDue starts the probes that are due and returns how long until the next.
// It reports false, and ends the run, when there are none at all.
func (s *scheduler) startDue() (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		s.running = false
		return 0, false
	}
	now := s.now()
	for len(s.due) > 0 && !s.due[0].next.After(now) {
		e := s.due[0]
		s.due.remove(e)
		ctx, cancel := context.WithTimeout(context.Background(), e.timeout)
		e.asking, e.again, e.cancel, e.began = true, false, cancel, s.now()
		if !e.asked {
			e.asked = true
			s.waiting--
		}
		go s.askOne(ctx, e)
	}
	if len(s.due) == 0 {
		return time.Hour, true
	}
	return s.due[0].next.Sub(now), true
}

// askOne asks e once, tells everybody the result and files e for the next time.
func (s *scheduler) askOne(ctx context.Context, e *entry) {
	r := result{began: e.began, err: e.ask(ctx)}
	e.cancel()
	for _, f := range s.take(e, r) {
		f(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.asking = false
	if e.ended {
		return
	}
	e.next = e.next.Add(e.interval)
	now := s.now()
	if e.next.Before(now) {
		e.next = now.Add(e.interval) // late: keep the distance, do not catch up
	}
	if e.jitter > 0 {
		e.next = e.next.Add(time.Duration(rand.Int64N(int64(e.jitter))))
	}
	if e.again {
		e.next = now
	}
	s.push(e)
}

// take keeps a result and returns those who want it.
func (s *scheduler) take(e *entry, r result) (wanted []func(result)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ended {
		return nil
	}
	e.last = r
	for _, sub := range e.subscribers {
		if !r.began.Before(sub.since) {
			wanted = append(wanted, sub.f)
		}
	}
	return wanted
}

// dueHeap has the probe that is due first at its head.
type dueHeap []*entry

func (h *dueHeap) push(e *entry) {
	e.place = len(*h)
	*h = append(*h, e)
	h.up(e.place)
}

func (h *dueHeap) remove(e *entry) {
	s := *h
	i, last := e.place, len(s)-1
	h.swap(i, last)
	s[last] = nil
	*h = s[:last]
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h *dueHeap) swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

func (h *dueHeap) up(i int) {
	for s := *h; i > 0; {
		parent := (i - 1) / 2
		if !s[i].next.Before(s[parent].next) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *dueHeap) down(i int) {
	for s := *h; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(s); c++ {
			if s[c].next.Before(s[least].next) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
