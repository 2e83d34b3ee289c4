// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/evloop"
)

// Owner is told what becomes of a [Relay], on the goroutine of its loop. It must
// not block.
type Owner interface {
	// Connected is called when the upstream server is connected, by a relay that
	// had to wait for that.
	Connected(now time.Time)
	// NotConnected is called instead when the server cannot be connected. The
	// relay has ended; the client's socket is the owner's again.
	NotConnected(err error)
	// Ended is called when the session has ended and both sockets are closed.
	Ended(r Reason)
}

// Relay is a session between two plain stream sockets that an event loop moves,
// without a goroutine of its own. It follows the rules of a Session, rates
// excepted.
type Relay struct {
	cfg      Config
	owner    Owner
	loop     *evloop.Loop
	up, down flow
	client   end
	upstream end

	connecting bool
	connectFor time.Duration
	connectTo  unix.Sockaddr
	closed     bool
	ends       int // flows whose source has ended, with HalfClose
	active     time.Time
	timer      *time.Timer
	reason     atomic.Uint32 // a Reason
}

// end is one socket of a relay.
type end struct {
	r     *Relay
	fd    int
	tcp   bool
	token evloop.Token
	from  *flow // of the bytes that it sends
	to    *flow // of those that it receives
}

// Ready implements evloop.Handler.
func (e *end) Ready(events uint32) { e.r.ready(e, events) }

// Init prepares a relay on loop, of which the caller holds a reference, between
// two sockets that do not block and are in no other poller. All of them are the
// relay's from Start on.
func (r *Relay) Init(loop *evloop.Loop, client, upstream int, tcp bool, cfg Config, owner Owner) {
	if cfg.BufferSize <= 0 {
		cfg.BufferSize = DefaultBufferSize
	}
	r.loop, r.cfg, r.owner = loop, cfg, owner
	r.client = end{r: r, fd: client, tcp: tcp, from: &r.up, to: &r.down}
	r.upstream = end{r: r, fd: upstream, tcp: tcp, from: &r.down, to: &r.up}
	r.up = flow{r: r, src: &r.client, dst: &r.upstream}
	r.down = flow{r: r, src: &r.upstream, dst: &r.client, firstByte: cfg.FirstByte}
}

// Connecting says, before Start, that the upstream socket is not connected yet,
// to what it is being connected, and that it may take so long. 0: as long as the
// kernel tries.
func (r *Relay) Connecting(to unix.Sockaddr, timeout time.Duration) {
	r.connecting, r.connectTo, r.connectFor = true, to, timeout
}

// Start begins to move. Only a caller on the loop's goroutine may say so.
func (r *Relay) Start(onLoop bool) {
	if onLoop {
		r.begin()
		return
	}
	r.loop.Post(r.begin)
}

func (r *Relay) begin() {
	if r.ending() {
		r.close()
		return
	}
	r.active = r.loop.Now()
	if r.connecting {
		if !r.add(&r.upstream) {
			return
		}
		r.setTimer(r.connectFor)
		return
	}
	if r.add(&r.client) && r.add(&r.upstream) {
		r.established()
	}
}

// add registers a socket. False: that failed, and with it the relay.
func (r *Relay) add(e *end) bool {
	var err error
	if e.token, err = r.loop.Add(e.fd, evloop.Edge, e); err == nil {
		return true
	}
	r.stop(WriteFailed) // no memory for it
	return false
}

// established begins with what was read before.
func (r *Relay) established() {
	r.setTimer(r.cfg.Timeout)
	if b := r.cfg.Preread; len(b) > 0 {
		r.cfg.Preread = nil
		r.up.read.Add(int64(len(b)))
		r.up.rest = b
		r.up.move()
	}
}

func (r *Relay) ready(e *end, events uint32) {
	if r.closed || r.connecting && !r.connected(events) {
		return
	}
	if events&evloop.Writable != 0 && e.to.blocked {
		e.to.blocked = false
		if e.to.move(); r.closed {
			return
		}
	}
	if events&unix.EPOLLPRI != 0 { // see urgentIsNext
		e.from.copies = true
	}
	if events&(evloop.Readable|unix.EPOLLPRI) != 0 {
		e.from.readable = true
		// With its end behind it, a short read says nothing of the next one.
		e.from.last = e.from.last || events&^(unix.EPOLLOUT|unix.EPOLLPRI) != unix.EPOLLIN
	}
	e.from.move()
}

// connected looks at what became of connecting. False: nothing yet, or it has
// failed.
func (r *Relay) connected(events uint32) bool {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		errno, err := unix.GetsockoptInt(r.upstream.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err != nil {
			r.notConnected(os.NewSyscallError("connect", err))
			return false
		}
	} else if events&unix.EPOLLOUT == 0 {
		return false
	}
	if r.toItself() {
		r.notConnected(ErrToItself)
		return false
	}
	r.connecting = false
	r.active = r.loop.Now()
	r.owner.Connected(r.active)
	if !r.add(&r.client) {
		return false
	}
	r.established()
	return !r.closed
}

// ErrToItself: the kernel chose the server's port for the connection's own end,
// which connects a socket with itself where nobody listens.
var ErrToItself = errors.New("splice: a socket connected with itself")

func (r *Relay) toItself() bool {
	local, err := unix.Getsockname(r.upstream.fd)
	if err != nil {
		return false
	}
	switch to := r.connectTo.(type) {
	case *unix.SockaddrInet4:
		l, ok := local.(*unix.SockaddrInet4)
		return ok && l.Port == to.Port && l.Addr == to.Addr
	case *unix.SockaddrInet6:
		l, ok := local.(*unix.SockaddrInet6)
		return ok && l.Port == to.Port && l.Addr == to.Addr
	}
	return false
}

func (r *Relay) notConnected(err error) {
	r.closed = true
	r.release(&r.upstream)
	r.stopTimer()
	r.owner.NotConnected(err)
	r.loop.Release()
}

// release takes a socket out of the loop and closes it.
func (r *Relay) release(e *end) {
	if e.token != (evloop.Token{}) {
		r.loop.Remove(e.token)
	}
	_ = unix.Close(e.fd)
}

// Abort ends the session soon, with Aborted unless it was about to end for
// another reason. It may be called from any goroutine, also before Start and
// more than once.
func (r *Relay) Abort() {
	if r.reason.CompareAndSwap(uint32(running), uint32(Aborted)) {
		r.loop.Post(r.close)
	}
}

func (r *Relay) ending() bool { return r.reason.Load() != uint32(running) }

// stop ends the session, on the loop's goroutine.
func (r *Relay) stop(why Reason) {
	r.reason.CompareAndSwap(uint32(running), uint32(why))
	r.close()
}

func (r *Relay) close() {
	if r.closed {
		return
	}
	if r.connecting {
		r.notConnected(net.ErrClosed)
		return
	}
	r.closed = true
	r.stopTimer()
	r.up.drop()
	r.down.drop()
	r.release(&r.client)
	r.release(&r.upstream)
	r.owner.Ended(Reason(r.reason.Load()))
	r.loop.Release()
}

// sourceEnded does what follows from the end of one source, all of whose bytes
// have been written.
func (r *Relay) sourceEnded(f *flow) {
	f.ended = true
	if r.cfg.HalfClose {
		if r.ends++; r.ends < 2 && unix.Shutdown(f.dst.fd, unix.SHUT_WR) == nil {
			return
		}
	}
	r.stop(Ended)
}

// setTimer makes checkTime be called on the loop after d, if there is a limit.
func (r *Relay) setTimer(d time.Duration) {
	switch {
	case d <= 0:
		r.stopTimer()
	case r.timer == nil:
		r.timer = time.AfterFunc(d, r.ring)
	default:
		r.timer.Reset(d)
	}
}

func (r *Relay) stopTimer() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

func (r *Relay) ring() { r.loop.Post(r.checkTime) }

// checkTime ends what takes too long, or sets the timer to when that would be
// due: it is not moved while bytes flow.
func (r *Relay) checkTime() {
	limit := r.cfg.Timeout
	if r.connecting {
		limit = r.connectFor
	}
	left := limit - time.Since(r.active)
	switch {
	case r.closed:
	case left > 0:
		r.setTimer(left)
	case r.connecting:
		r.notConnected(os.ErrDeadlineExceeded)
	default:
		r.stop(TimedOut)
	}
}

// Counts returns the bytes moved so far. It may be called at any time.
func (r *Relay) Counts() Counts {
	return Counts{
		FromClient:   r.up.read.Load(),
		ToUpstream:   r.up.written.Load(),
		FromUpstream: r.down.read.Load(),
		ToClient:     r.down.written.Load(),
		Spliced:      r.up.spliced.Load() + r.down.spliced.Load(),
	}
}
