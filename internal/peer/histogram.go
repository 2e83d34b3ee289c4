// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A Histogram counts times in buckets that grow by a fifth or so each: four to
// every doubling, from 2^17 ns (131 us) to 2^37 ns (137 s). It keeps the counts
// since it was made and those of the last minute, in slots of ten seconds.
// Recording takes no lock; at the turn of a slot a few times may be lost to the
// window, never to the total.
type Histogram struct {
	total [buckets]atomic.Uint64
	sum   atomic.Int64
	slots [windowSlots]slot
}

type slot struct {
	epoch  atomic.Int64
	sum    atomic.Int64
	counts [buckets]atomic.Uint32
}

const (
	lowest      = 17
	octaves     = 20
	perOctave   = 4
	buckets     = octaves*perOctave + 2 // and those below and above
	windowSlots = 6
	slotLength  = 10 * time.Second
)

// bucketOf is the bucket of a time: it holds those from its lower bound up to,
// and without, that of the next.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	top := bits.Len64(n) - 1
	switch {
	case top < lowest:
		return 0
	case top >= lowest+octaves:
		return buckets - 1
	}
	return 1 + (top-lowest)*perOctave + int(n>>(top-2)&(perOctave-1))
}

// bound is the upper bound of a bucket.
func bound(i int) time.Duration {
	if i >= buckets-1 {
		return math.MaxInt64
	}
	octave, part := i/perOctave, i%perOctave
	return time.Duration((perOctave + uint64(part)) << (lowest - 2 + octave))
}

// Record counts d.
func (h *Histogram) Record(d time.Duration, now time.Time) {
	i := bucketOf(d)
	h.total[i].Add(1)
	h.sum.Add(int64(d))
	epoch := now.Unix() / int64(slotLength/time.Second)
	s := &h.slots[epoch%windowSlots]
	if was := s.epoch.Load(); was != epoch {
		if was > epoch || !s.epoch.CompareAndSwap(was, epoch) {
			if s.epoch.Load() != epoch {
				return // late by a whole window
			}
		} else {
			s.sum.Store(0)
			for j := range s.counts {
				s.counts[j].Store(0)
			}
		}
	}
	s.sum.Add(int64(d))
	s.counts[i].Add(1)
}

// Times is what a histogram says of the last minute.
type Times struct {
	Count               uint64
	Mean, P50, P90, P99 time.Duration
}

// Window returns the times of the last minute; ok is false if there were none.
func (h *Histogram) Window(now time.Time) (t Times, ok bool) {
	if h == nil {
		return Times{}, false
	}
	epoch := now.Unix() / int64(slotLength/time.Second)
	var counts [buckets]uint64
	var sum int64
	for i := range h.slots {
		s := &h.slots[i]
		if e := s.epoch.Load(); e > epoch || e <= epoch-windowSlots {
			continue
		}
		sum += s.sum.Load()
		for j := range counts {
			n := uint64(s.counts[j].Load())
			counts[j] += n
			t.Count += n
		}
	}
	if t.Count == 0 {
		return t, false
	}
	t.Mean = time.Duration(sum / int64(t.Count))
	t.P50, t.P90, t.P99 = quantile(&counts, t.Count, 50), quantile(&counts, t.Count, 90), quantile(&counts, t.Count, 99)
	return t, true
}

// quantile interpolates within the bucket.
func quantile(counts *[buckets]uint64, total uint64, percent uint64) time.Duration {
	rank := (total*percent + 99) / 100
	var seen uint64
	for i, n := range counts {
		if seen+n < rank || n == 0 {
			seen += n
			continue
		}
		low := time.Duration(0)
		if i > 0 {
			low = bound(i - 1)
		}
		if i == buckets-1 {
			return low
		}
		return low + time.Duration(float64(bound(i)-low)*float64(rank-seen)/float64(n))
	}
	return 0
}

// Total returns the number of times, their sum, and how many were less than
// each of limits, which ascend, as far as the buckets can tell.
func (h *Histogram) Total(limits []time.Duration) (count uint64, sum time.Duration, below []uint64) {
	below = make([]uint64, len(limits))
	if h == nil {
		return 0, 0, below
	}
	for i := range h.total {
		n := h.total[i].Load()
		count += n
		for j, limit := range limits {
			if bound(i) <= limit {
				below[j] += n
			}
		}
	}
	return count, time.Duration(h.sum.Load()), below
}

// Limits returns bounds of buckets, one for each doubling from about a
// millisecond to about a minute, in ascending order.
func Limits() []time.Duration {
	var out []time.Duration
	for octave := 3; octave < 3+17; octave++ {
		out = append(out, bound(octave*perOctave))
	}
	return out
}
