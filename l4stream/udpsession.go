// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/udpbatch"
)

// udpSession is the UDP side of a session. The goroutine of the listening
// socket sends what comes from the client, one of its own what comes from the
// server. The rules are nginx's, except that a refused port ends the session at
// once, so that the next datagram goes to the next server.
type udpSession struct {
	socket  *udpSocket
	session *Session
	key     udpKey
	client  netip.AddrPort
	source  udpbatch.Source

	proxy  *ProxyPass
	try    *try
	up     *net.UDPConn // nil on a loop
	loop   udpLoop
	batch  *udpbatch.Socket
	header []byte // PROXY header for the next datagram, nil for none

	touched     bool // is in the socket's queue; used by its goroutine
	first, last int  // datagrams there, likewise

	requests  atomic.Int64
	responses atomic.Int64
	active    atomic.Int64 // time of the last datagram, since the session's start
	upload    datagramRate // used by the socket's goroutine
	download  datagramRate // used by the session's goroutine
	delayed   atomic.Int32 // directions that a rate delays

	mu      sync.Mutex // guards what follows
	running bool       // has a server; ends by itself
	ended   bool
	status  int
	cause   error
	timer   *time.Timer
	release chan struct{} // closed at the end
}

// serveUDP connects the session to a server and returns; the session goes on
// by itself.
func (p *ProxyPass) serveUDP(s *Session, group *peer.Group, address string) error {
	u := s.udp
	u.proxy = p
	if err := u.connect(group, address); err != nil {
		return err
	}
	upload, err := rate(s, p.UploadRate)
	if err == nil {
		u.upload = newDatagramRate(upload, s.start)
		var download int64
		download, err = rate(s, p.DownloadRate)
		u.download = newDatagramRate(download, s.start)
	}
	if err != nil {
		u.giveBack(peer.None)
		_ = u.up.Close()
		return err
	}
	u.join()
	u.socket.mu.Lock()
	u.socket.sessions[u.key] = u
	u.socket.mu.Unlock()
	u.start()
	p.bind(s, u.try)
	u.upload.bytes += int64(len(s.preread)) // it delays nothing: it was read before there was a rate
	u.send(s.preread, time.Now())
	s.preread = nil
	if u.up == nil {
		u.enter()
	} else {
		go u.run()
	}
	return nil
}

// start makes the session one that ends by itself.
func (u *udpSession) start() {
	u.release = make(chan struct{})
	if u.proxy.ProxyProtocol != "" {
		u.header = u.proxy.proxyHeader(u.session)
	}
	u.mu.Lock()
	u.running = true
	u.timer = time.AfterFunc(time.Duration(u.proxy.Timeout), u.checkIdle)
	u.mu.Unlock()
	if u.session.aborted.Load() {
		u.end(StatusOK, nil)
	}
}

// connect takes a server and makes a socket to it.
func (u *udpSession) connect(group *peer.Group, address string) error {
	s, p := u.session, u.proxy
	if group == nil {
		u.try = s.newTry(nil, address, time.Now())
		return u.dial(address)
	}
	s.walk.Begin(group, p.options(s, group))
	for {
		var err error
		if u.try, err = p.next(s, group); err != nil {
			return err
		}
		err = u.dial(u.try.lease.Peer().Server().Address)
		now := time.Now()
		if err == nil {
			u.try.lease.Connected(now)
			u.try.lease.Hold(s, true)
			u.try.lease.Peer().Stats.Sessions.Add(1)
			return nil
		}
		if again, err := p.failed(s, u.try, err, now); !again {
			return err
		}
	}
}

func (u *udpSession) dial(address string) error {
	network, target := network(address, true)
	if network != "udp" {
		return errors.New("a unix socket cannot be reached over UDP")
	}
	local, err := u.proxy.localAddr(u.session)
	if err != nil {
		return localError{err}
	}
	var d net.Dialer
	if local.IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(local)
	}
	conn, err := d.DialContext(context.Background(), network, target)
	if err != nil {
		return err
	}
	u.up = conn.(*net.UDPConn)
	if u.batch, err = udpbatch.New(u.up); err != nil {
		_ = u.up.Close()
		return err
	}
	u.try.connect = max(time.Since(u.try.started), 1)
	return nil
}

// fromClient sends a datagram of the client on, or drops it while the upload
// rate delays the client. It runs on the socket's goroutine.
func (u *udpSession) fromClient(data []byte, now time.Time) {
	if !u.upload.take(len(data), now) {
		return
	}
	u.send(data, now)
}

// send passes a datagram of the client on.
func (u *udpSession) send(data []byte, now time.Time) {
	u.touch(now)
	requests := u.requests.Add(1)
	u.session.received.Add(int64(len(data)))
	if u.header != nil {
		data = append(u.header[:len(u.header):len(u.header)], data...)
		if !u.proxy.ProxyProtocolEvery {
			u.header = nil
		}
	}
	u.socket.enqueue(u, data)
	u.try.sent.Add(int64(len(data)))
	if n := int64(u.proxy.ProxyRequests); n > 0 && requests >= n {
		u.unbind()
	}
}

// flush sends what fromClient has put in the queue, at the end of a batch. A
// batch that was received is not larger than one that can be sent.
func (u *udpSession) flush() {
	u.touched = false
	w := u.batch.NewSender()
	for i := u.first; ; {
		q := &u.socket.queue[i]
		w.Add(q.data, netip.AddrPort{}, nil)
		if i = q.next; i == 0 {
			break
		}
	}
	err := w.TryFlush()
	w.Release()
	if err != nil && !errors.Is(err, udpbatch.ErrDropped) && !errors.Is(err, net.ErrClosed) {
		u.refused(err)
	}
	if u.done() { // no answer is expected
		u.end(StatusOK, nil)
	}
}

// run passes on what comes from the server until the session ends.
func (u *udpSession) run() {
	for !u.hasEnded() {
		err := u.batch.Serve(func(packets []udpbatch.Packet) bool {
			u.fromServer(packets, time.Now())
			return !u.hasEnded()
		})
		if err != nil { // of a datagram, or that the session has ended
			u.refused(err)
		}
	}
	_ = u.up.Close()
	u.finish()
}

func (u *udpSession) fromServer(packets []udpbatch.Packet, now time.Time) {
	w := u.socket.batch.NewSender()
	defer w.Release()
	u.try.gotFirstByte()
	u.touch(now)
	for i := range packets {
		n := int64(len(packets[i].Data))
		u.try.received.Add(n)
		if u.download.rate > 0 && !u.wait(u.download.wait(time.Now())) {
			return
		}
		if !w.Add(packets[i].Data, u.client, u.source) {
			_ = w.Flush()
			w.Add(packets[i].Data, u.client, u.source)
		}
		u.session.sent.Add(n)
		if u.download.rate > 0 {
			_ = w.Flush()
			if !u.wait(u.download.read(len(packets[i].Data))) {
				return
			}
		}
	}
	u.responses.Add(int64(len(packets)))
	done := u.done()
	if done {
		u.unbind() // before the client can answer the answer
	}
	_ = w.Flush()
	if done {
		u.end(StatusOK, nil)
	}
}

// wait lets a rate delay the server's direction. False: the session has ended.
func (u *udpSession) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	u.delayed.Add(1)
	defer u.delayed.Add(-1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		u.touch(time.Now())
		return true
	case <-u.release:
		return false
	}
}

func (u *udpSession) touch(now time.Time) { u.active.Store(int64(now.Sub(u.session.start))) }

// answered reports whether as many datagrams have come as are expected.
func (u *udpSession) answered() bool {
	m := u.proxy.ProxyResponses
	return m == nil || u.responses.Load() >= int64(*m)*u.requests.Load()
}

// done reports whether all that is expected of the session has happened.
func (u *udpSession) done() bool {
	n := int64(u.proxy.ProxyRequests)
	return u.proxy.ProxyResponses != nil && (n == 0 || u.requests.Load() >= n) && u.answered()
}

// checkIdle runs when the timer fires.
func (u *udpSession) checkIdle() {
	idle := time.Since(u.session.start) - time.Duration(u.active.Load())
	left := time.Duration(u.proxy.Timeout) - idle
	if u.delayed.Load() > 0 {
		left = time.Duration(u.proxy.Timeout)
	}
	switch {
	case left > 0:
		u.mu.Lock()
		defer u.mu.Unlock()
		if !u.ended {
			u.timer.Reset(left)
		}
	case u.answered():
		u.end(StatusOK, nil)
	default:
		u.end(StatusBadGateway, errors.New("no answer within the timeout"))
	}
}

// refused ends a session whose server's port is closed. For the counters, that
// was an answer: the client gets none.
func (u *udpSession) refused(err error) { u.end(StatusOK, err) }

// end begins the end of the session. Only the first call counts. With a cause
// the server has failed.
func (u *udpSession) end(status int, cause error) {
	u.mu.Lock()
	if u.ended || !u.running {
		u.mu.Unlock()
		return
	}
	u.ended, u.status, u.cause = true, status, cause
	u.timer.Stop()
	u.mu.Unlock()
	close(u.release)
	u.unbind()
	if u.up == nil {
		u.leave()
		return
	}
	_ = u.up.SetReadDeadline(longAgo) // run sees it and finishes
}

func (u *udpSession) hasEnded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ended
}

// unbind makes the client's next datagram begin a new session.
func (u *udpSession) unbind() {
	u.socket.mu.Lock()
	defer u.socket.mu.Unlock()
	if u.socket.sessions[u.key] == u {
		delete(u.socket.sessions, u.key)
	}
}

// finish runs once, on the session's goroutine, after end.
func (u *udpSession) finish() {
	u.mu.Lock()
	status, cause := u.status, u.cause
	u.mu.Unlock()
	outcome := peer.Success
	if cause != nil {
		outcome = peer.Failed
		if u.try.lease != nil {
			u.try.lease.Cause = cause
		}
	}
	u.giveBack(outcome)
	u.session.status = status
	u.session.finish(nil)
	u.socket.open.Add(-1)
}

func (u *udpSession) isRunning() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.running
}

func (u *udpSession) giveBack(o peer.Outcome) {
	now := time.Now()
	u.try.end = max(now.Sub(u.try.started), 1)
	if u.try.lease != nil {
		u.try.count(now)
		u.try.lease.Done(o, now)
	}
}

// datagramRate is a limit in bytes per second for datagrams, which are never
// cut: so many are allowed in all since the second in which it began; when none
// are left the direction is delayed, and each datagram delays it, too.
type datagramRate struct {
	rate  int64
	start int64 // second
	bytes int64
	until time.Time
}

func newDatagramRate(rate int64, start time.Time) datagramRate {
	return datagramRate{rate: rate, start: start.Unix()}
}

// wait is how long to wait before the next datagram may be read.
func (r *datagramRate) wait(now time.Time) time.Duration {
	if r.rate == 0 {
		return 0
	}
	allowed := r.rate*(now.Unix()-r.start+1) - r.bytes
	if allowed > 0 {
		return 0
	}
	return time.Duration(-allowed*1000/r.rate+1) * time.Millisecond
}

// read counts a datagram and returns how long it delays the direction.
func (r *datagramRate) read(n int) time.Duration {
	r.bytes += int64(n)
	return time.Duration(int64(n)*1000/r.rate) * time.Millisecond
}

// take is for a direction that cannot wait: it reports whether a datagram may
// pass now, and counts it.
func (r *datagramRate) take(n int, now time.Time) bool {
	if r.rate == 0 {
		return true
	}
	if now.Before(r.until) {
		return false
	}
	if d := r.wait(now); d > 0 {
		r.until = now.Add(d)
		return false
	}
	r.until = now.Add(r.read(n))
	return true
}
