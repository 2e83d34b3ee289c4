// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is how moving in one direction came to its end.
type outcome uint8

const (
	// sourceEnded: the source sent its end, or reading failed, and all that
	// was read has been written. Also when the session was stopped.
	sourceEnded outcome = iota
	writeFailed
)

// direction moves bytes one way. Its counters are written by one goroutine.
type direction struct {
	s         *Session
	src, dst  net.Conn
	limit     limiter
	firstByte func() // nil once called

	read, written, spliced atomic.Int64
}

// maxChunk is the most that is moved at once without a rate: whatever fits.
const maxChunk = 1 << 30

// quota waits until the rate allows to read and returns how much. False: the
// session was stopped meanwhile.
func (d *direction) quota() (int, bool) {
	if d.limit.rate <= 0 {
		return maxChunk, true
	}
	for {
		allowed, wait := d.limit.before(time.Now(), d.read.Load())
		if allowed > 0 {
			return int(min(allowed, int64(d.s.cfg.BufferSize))), true
		}
		if !d.delay(wait) {
			return 0, false
		}
	}
}

// delay waits, with the session's clock standing still.
func (d *direction) delay(wait time.Duration) bool {
	d.s.delays.Add(1)
	t := time.NewTimer(wait)
	defer func() {
		t.Stop()
		d.s.touch() // before the clock runs again
		d.s.delays.Add(-1)
	}()
	select {
	case <-t.C:
		return true
	case <-d.s.done:
		return false
	}
}

// onRead accounts for n bytes that were read.
func (d *direction) onRead(n int) {
	d.read.Add(int64(n))
	d.s.touch()
	if d.limit.rate > 0 {
		d.limit.after(time.Now(), int64(n))
	}
	if d.firstByte != nil {
		d.firstByte()
		d.firstByte = nil
	}
}

// onWrite accounts for n bytes that were written.
func (d *direction) onWrite(n int) {
	if n > 0 {
		d.written.Add(int64(n))
		d.s.touch()
	}
}

// sendPreread writes what was read before the session, and lets go of it.
func (d *direction) sendPreread() bool {
	b := d.s.cfg.Preread
	if len(b) == 0 {
		return true
	}
	d.read.Add(int64(len(b)))
	d.s.touch()
	n, err := d.dst.Write(b)
	d.onWrite(n)
	d.s.cfg.Preread = nil
	return err == nil
}

// smallBuffer is what a direction waits with that cannot know when there is
// something to read.
const smallBuffer = 512

// copyAll moves through buffers of this process, for any kind of connection.
func (d *direction) copyAll() outcome {
	small := make([]byte, smallBuffer)
	var large *[]byte
	defer func() { putBuffer(large) }()
	for {
		most, ok := d.quota()
		if !ok {
			return sourceEnded
		}
		b := small
		if large != nil {
			b = *large
		}
		n, err := d.src.Read(b[:min(most, len(b))])
		if n > 0 {
			d.onRead(n)
			w, werr := d.dst.Write(b[:n])
			d.onWrite(w)
			if werr != nil {
				return writeFailed
			}
		}
		if err != nil {
			return sourceEnded
		}
		switch {
		case large == nil && n == smallBuffer:
			large = getBuffer(d.s.cfg.BufferSize)
		case large != nil && n < smallBuffer:
			putBuffer(large)
			large = nil
		}
	}
}

// buffers holds *[]byte, mostly of one size: that of the configuration.
var buffers sync.Pool

func getBuffer(size int) *[]byte {
	if b, _ := buffers.Get().(*[]byte); b != nil && cap(*b) >= size {
		*b = (*b)[:size]
		return b
	}
	b := make([]byte, size)
	return &b
}

func putBuffer(b *[]byte) {
	if b != nil {
		buffers.Put(b)
	}
}
