// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultBufferSize is the size of copying buffers, nginx's proxy_buffer_size.
const DefaultBufferSize = 16 << 10

// Config says how a session is run. It is read-only once given to New.
type Config struct {
	// Timeout ends the session when nothing was read or written on either
	// side for so long. 0: never.
	Timeout time.Duration
	// HalfClose passes on the end of one side while the other still sends.
	HalfClose bool
	// UploadRate and DownloadRate limit reading from the client and from the
	// upstream server, in bytes per second. 0: no limit.
	UploadRate, DownloadRate int64
	// BufferSize is the size of copying buffers, and the most that is read at
	// once in a direction with a rate. 0: DefaultBufferSize.
	BufferSize int
	// Preread holds bytes that were read from the client already; they are
	// sent first. They count as received from the client.
	Preread []byte
	// FirstByte, if set, is called once, when the first bytes have come from
	// the upstream server, on the goroutine that reads them.
	FirstByte func()
}

// Reason is why a session ended.
type Reason uint32

const (
	running Reason = iota
	// Ended: one side, or with HalfClose both, had sent everything.
	Ended
	// WriteFailed: one side no longer took bytes.
	WriteFailed
	// TimedOut: nothing moved for the timeout.
	TimedOut
	// Aborted: Abort was called.
	Aborted
)

func (r Reason) String() string {
	return [...]string{"running", "ended", "write failed", "timed out", "aborted"}[r]
}

// Counts are a session's bytes. While it runs they may be a moment apart from
// each other.
type Counts struct {
	FromClient, ToUpstream int64
	FromUpstream, ToClient int64
	// Spliced is how many of the written bytes never were in this process.
	Spliced int64
}

// Session is one client's connection and the one made for it.
type Session struct {
	cfg      Config
	up, down direction

	start  time.Time
	active atomic.Int64  // time of the last read or write, since start
	delays atomic.Int32  // directions that a rate limit delays
	ends   atomic.Int32  // directions whose source has ended
	reason atomic.Uint32 // a Reason
	timer  *time.Timer
	other  sync.WaitGroup // the goroutine of down
	done   chan struct{}  // closed when the session is to end; nil without rates
}

// New makes a session of two connected connections, which it owns from then on.
func New(client, upstream net.Conn, cfg Config) *Session {
	if cfg.BufferSize <= 0 {
		cfg.BufferSize = DefaultBufferSize
	}
	s := &Session{cfg: cfg}
	s.up = direction{s: s, src: client, dst: upstream, limit: limiter{rate: cfg.UploadRate}}
	s.down = direction{s: s, src: upstream, dst: client, limit: limiter{rate: cfg.DownloadRate}, firstByte: cfg.FirstByte}
	if cfg.UploadRate > 0 || cfg.DownloadRate > 0 {
		s.done = make(chan struct{})
	}
	return s
}

// Run moves bytes until the session ends, closes both connections and returns
// why it ended. It is called once.
func (s *Session) Run() Reason {
	s.start = time.Now()
	s.up.limit.start, s.down.limit.start = s.start.Unix(), s.start.Unix()
	if s.cfg.Timeout > 0 {
		s.timer = time.AfterFunc(time.Duration(1<<63-1), s.checkIdle)
		s.timer.Reset(s.cfg.Timeout) // not before the function may read the field
	}
	s.other.Add(1)
	go s.runDown()
	s.runUp()
	s.other.Wait()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.up.src.Close()
	s.up.dst.Close()
	return Reason(s.reason.Load())
}

// runDown is a goroutine of its own.
func (s *Session) runDown() {
	defer s.other.Done()
	s.finish(&s.down, s.down.pump())
}

func (s *Session) runUp() {
	if !s.up.sendPreread() {
		s.finish(&s.up, writeFailed)
		return
	}
	s.finish(&s.up, s.up.pump())
}

// finish does what follows from the end of one direction.
func (s *Session) finish(d *direction, end outcome) {
	switch {
	case end == writeFailed:
		s.stop(WriteFailed)
	case !s.cfg.HalfClose || s.ends.Add(1) == 2 || !closeWrite(d.dst):
		s.stop(Ended)
	}
}

// closeWrite tells the other side that no more comes. False: it cannot be told.
func closeWrite(c net.Conn) bool {
	w, ok := c.(interface{ CloseWrite() error })
	return ok && w.CloseWrite() == nil
}

// Abort ends the session now: Run returns soon, with Aborted unless the
// session was about to end for another reason. It may be called from any
// goroutine, also before Run and more than once.
func (s *Session) Abort() { s.stop(Aborted) }

// past is a deadline that is over.
var past = time.Unix(1, 0)

// stop makes both directions return. The first reason stays.
func (s *Session) stop(r Reason) {
	if !s.reason.CompareAndSwap(uint32(running), uint32(r)) {
		return
	}
	if s.done != nil {
		close(s.done)
	}
	// The connections themselves are closed when nobody uses them any more.
	_ = s.up.src.SetDeadline(past)
	_ = s.up.dst.SetDeadline(past)
}

func (s *Session) stopped() bool { return s.reason.Load() != uint32(running) }

// touch notes that something moved.
func (s *Session) touch() {
	if s.cfg.Timeout > 0 {
		s.active.Store(int64(time.Since(s.start)))
	}
}

// checkIdle runs when the timer fires: it ends the session or sets the timer
// to when that would be due.
func (s *Session) checkIdle() {
	left := s.cfg.Timeout
	if s.delays.Load() == 0 {
		left -= time.Since(s.start) - time.Duration(s.active.Load())
	}
	if left <= 0 {
		s.stop(TimedOut)
	}
	if s.stopped() {
		return
	}
	s.timer.Reset(left)
	if s.stopped() {
		s.timer.Stop() // Run may have stopped it before the Reset
	}
}

// Counts returns the bytes moved so far. It may be called at any time.
func (s *Session) Counts() Counts {
	return Counts{
		FromClient:   s.up.read.Load(),
		ToUpstream:   s.up.written.Load(),
		FromUpstream: s.down.read.Load(),
		ToClient:     s.down.written.Load(),
		Spliced:      s.up.spliced.Load() + s.down.spliced.Load(),
	}
}
