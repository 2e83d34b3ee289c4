// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/splice"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// Handle implements Handler.
func (p *ProxyPass) Handle(s *Session) error {
	group, address, err := p.target.group(s)
	if err != nil {
		return err
	}
	if s.udp != nil {
		return p.serveUDP(s, group, address)
	}
	if s.direct != nil {
		return s.direct.proxy(p, group)
	}
	up, t, err := p.connect(s, group, address)
	if err != nil {
		return err
	}
	return p.pump(s, up, t)
}

// connect finds a server that can be connected, one after the other.
func (p *ProxyPass) connect(s *Session, group *peer.Group, address string) (net.Conn, *try, error) {
	if group == nil { // an address from placeholders: nothing to choose, nothing to account
		t := s.newTry(nil, address, time.Now())
		up, err := p.dial(s, t, address, "")
		if err != nil {
			return nil, nil, endWith(StatusBadGateway, "connecting to %s: %w", address, err)
		}
		return up, t, nil
	}
	s.walk.Begin(group, p.options(s, group))
	if p.ConnectHedge > 0 {
		return p.race(s, group)
	}
	t, err := p.next(s, group)
	if err != nil {
		return nil, nil, err
	}
	return p.connectFrom(s, group, t)
}

// connectFrom connects the server of t, or one after it.
func (p *ProxyPass) connectFrom(s *Session, group *peer.Group, t *try) (net.Conn, *try, error) {
	for {
		server := t.lease.Peer().Server()
		up, err := p.dial(s, t, server.Address, server.Line)
		if err == nil {
			connected(s, t, time.Now())
			return up, t, nil
		}
		if t, err = p.nextAfter(s, group, t, err); err != nil {
			return nil, nil, err
		}
	}
}

// connected accounts for a session that is about to begin.
func connected(s *Session, t *try, now time.Time) {
	t.lease.Connected(now)
	t.lease.Hold(s, true)
	t.lease.Peer().Stats.Sessions.Add(1)
}

// nextAfter takes the next server after one that could not be connected.
func (p *ProxyPass) nextAfter(s *Session, group *peer.Group, t *try, failure error) (*try, error) {
	if again, err := p.failed(s, t, failure, time.Now()); !again {
		return nil, err
	}
	return p.next(s, group)
}

// next takes the next server of the session's walk.
func (p *ProxyPass) next(s *Session, group *peer.Group) (*try, error) {
	lease, err := p.pick(s, group)
	if err != nil {
		s.newTry(nil, group.Name(), time.Now())
		return nil, endWith(StatusBadGateway, "group %s: %w", group.Name(), err)
	}
	return p.selected(s, group, lease), nil
}

// selected begins a try at the server that lease holds.
func (p *ProxyPass) selected(s *Session, group *peer.Group, lease *peer.Lease) *try {
	server := lease.Peer().Server()
	if c := p.logger.Check(zapcore.DebugLevel, "peer selected"); c != nil {
		c.Write(zap.String("group", group.Name()), zap.String("peer", server.ID),
			zap.Int64("current_weight", lease.CurrentWeight), zap.Int("tries_left", lease.TriesLeft))
	}
	return s.newTry(lease, server.Name, lease.Start)
}

// pick may have to wait for a server. A client that leaves meanwhile is noticed
// when the wait is over.
func (p *ProxyPass) pick(s *Session, group *peer.Group) (*peer.Lease, error) {
	if group.QueueTimeout() == 0 || s.udp != nil { // datagrams do not wait
		return s.walk.Next(time.Now())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := (func())(cancel)
	s.stopDial.Store(&stop)
	defer s.stopDial.CompareAndSwap(&stop, nil)
	if s.aborted.Load() {
		cancel()
	}
	return upstream.Pick(ctx, &s.walk, time.Now())
}

// failed gives a server back that could not be connected. False: that was the
// last try, and what the session ends with.
func (p *ProxyPass) failed(s *Session, t *try, err error, now time.Time) (again bool, end error) {
	t.end = max(now.Sub(t.started), 1)
	name := t.addr
	switch {
	case s.aborted.Load():
		t.lease.Done(peer.None, now)
		return false, endWith(StatusOK, "aborted while connecting to %s", name)
	case localFailure(err):
		t.lease.Done(peer.None, now)
		return false, fmt.Errorf("connecting to %s: %w", name, err)
	}
	event := reasonOf(err)
	t.lease.Cause, t.lease.Reason = err, event
	t.lease.Done(peer.Failed, now)
	if !s.walk.MayRetry(&p.nextPolicy, event, peer.Progress{}, now) {
		return false, endWith(StatusBadGateway, "connecting to %s: %w", name, err)
	}
	if c := p.logger.Check(zapcore.InfoLevel, "trying the next server"); c != nil {
		c.Write(zap.String("server", name), zap.Error(err))
	}
	return true, nil
}

// connecting is the context of one attempt to connect: its end is a time, or
// the session's Abort. It costs neither a timer nor a goroutine.
type connecting struct {
	context.Context
	session *Session
	at      time.Time
}

// never is not closed: package net learns of an abort through AfterFunc, and
// keeps the deadline by itself.
var never = make(chan struct{})

func (c *connecting) Deadline() (time.Time, bool) { return c.at, true }

func (c *connecting) Done() <-chan struct{} { return never }

func (c *connecting) Err() error {
	switch {
	case c.session.aborted.Load():
		return context.Canceled
	case time.Now().After(c.at):
		return context.DeadlineExceeded
	}
	return nil
}

// AfterFunc makes Abort call f; see [context.AfterFunc].
func (c *connecting) AfterFunc(f func()) func() bool {
	c.session.stopDial.Store(&f)
	if c.session.aborted.Load() {
		f()
	}
	return func() bool { return c.session.stopDial.CompareAndSwap(&f, nil) }
}

// dial connects to one server and says what has to be said first: a PROXY
// header, then TLS.
func (p *ProxyPass) dial(s *Session, t *try, address, line string) (net.Conn, error) {
	d, err := p.dialing(s, t, address, line)
	if err != nil {
		return nil, err
	}
	up, err := d.run(&connecting{context.Background(), s, d.at})
	if err != nil {
		return nil, err
	}
	p.tune(*s.raw.Load())
	t.connect = max(time.Since(t.started), 1)
	return up, nil
}

// dialing is all that connecting to a server for a session takes: it can go on
// without the session.
type dialing struct {
	p       *ProxyPass
	t       *try
	address string
	local   netip.AddrPort
	header  []byte      // PROXY header, nil without
	tls     *tls.Config // nil without
	at      time.Time   // when connect_timeout is over
}

func (p *ProxyPass) dialing(s *Session, t *try, address, line string) (*dialing, error) {
	local, err := p.localAddr(s)
	if err != nil {
		return nil, localError{err}
	}
	d := &dialing{
		p: p, t: t, address: address, local: local, header: p.proxyHeader(s),
		at: t.started.Add(time.Duration(p.ConnectTimeout)),
	}
	if p.SSL != nil {
		d.tls = p.SSL.clientConfig(s, address, line)
	}
	return d, nil
}

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

func (d *dialing) run(ctx context.Context) (net.Conn, error) {
	up, err := dialStream(ctx, d.address, d.local)
	if err != nil {
		return nil, err
	}
	d.p.tune(up)
	if d.header == nil && d.tls == nil {
		return up, nil
	}
	raw := up
	_ = raw.SetDeadline(d.at)
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(longAgo) })
	if up, err = d.greet(up); !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	return up, nil
}

// greet sends the PROXY header and begins TLS.
func (d *dialing) greet(up net.Conn) (net.Conn, error) {
	if d.header != nil {
		n, err := up.Write(d.header)
		d.t.sent.Add(int64(n))
		if err != nil {
			return nil, err
		}
	}
	if d.tls == nil {
		return up, nil
	}
	conn := tls.Client(up, d.tls)
	if err := conn.HandshakeContext(context.Background()); err != nil {
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return conn, nil
}

func dialStream(ctx context.Context, address string, local netip.AddrPort) (net.Conn, error) {
	network, target := network(address, false)
	d := net.Dialer{KeepAlive: -1} // socket_keepalive turns probes on
	if local.IsValid() && network == "tcp" {
		d.LocalAddr = net.TCPAddrFromAddrPort(local)
	}
	return d.DialContext(ctx, network, target)
}

// tune sets the socket options that were asked for.
func (p *ProxyPass) tune(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if p.NoDelay == "off" {
		_ = tcp.SetNoDelay(false)
	}
	if p.SocketKeepalive {
		_ = tcp.SetKeepAlive(true)
	}
}

func (p *ProxyPass) proxyHeader(s *Session) []byte {
	switch p.ProxyProtocol {
	case "v1":
		return proxyproto.AppendV1(nil, s.client, s.local)
	case "v2":
		var info *proxyproto.TLSInfo
		if s.tls != nil {
			var cert *x509.Certificate
			if s.cert != nil {
				cert = s.cert.Leaf
			}
			info = proxyproto.TLSInfoOf(*s.tls, cert)
		}
		return proxyproto.AppendV2(nil, s.client, s.local, s.udp != nil, info)
	}
	return nil
}

// clientConfig is the TLS configuration for one server. Sessions are resumed
// with the server that began them only.
func (u *UpstreamTLS) clientConfig(s *Session, address, line string) *tls.Config {
	c := u.client.Config.Clone()
	c.ServerName = s.expand(c.ServerName)
	if c.ServerName == "" {
		c.ServerName = cmp.Or(upstream.HostOf(cmp.Or(line, address)), "localhost")
	}
	for _, name := range u.ALPN {
		if name = s.expand(name); name != "" {
			c.NextProtos = append(c.NextProtos, name)
		}
	}
	if line != "" { // else the client's choice, of which there is no end
		c.ClientSessionCache = u.sessionsWith(address)
	}
	if u.NoSNI {
		clienttls.WithoutSNI(c)
	}
	return c
}

// sessionsWith returns the sessions that can be resumed with a server.
func (u *UpstreamTLS) sessionsWith(address string) tls.ClientSessionCache {
	u.mu.Lock()
	defer u.mu.Unlock()
	cache := u.sessions[address]
	if cache == nil {
		cache = tls.NewLRUClientSessionCache(4)
		u.sessions[address] = cache
	}
	return cache
}

// pump moves the bytes of a connected session until it ends.
func (p *ProxyPass) pump(s *Session, up net.Conn, t *try) error {
	upload, err := rate(s, p.UploadRate)
	if err == nil {
		var download int64
		if download, err = rate(s, p.DownloadRate); err == nil {
			return p.run(s, up, t, upload, download)
		}
	}
	_ = up.Close()
	if t.lease != nil {
		t.lease.Done(peer.None, time.Now())
	}
	return err
}

func (p *ProxyPass) run(s *Session, up net.Conn, t *try, upload, download int64) error {
	config := p.config(s, t)
	config.UploadRate, config.DownloadRate = upload, download
	if p.runAway(s, up, t, config) {
		return errAway
	}
	session := splice.New(s.Conn, up, config)
	s.moveBy(session)
	p.bind(s, t)
	reason := session.Run()
	p.moved(s, t, reason, session.Counts(), len(config.Preread))
	return nil
}

// config says how the session is moved, which owns what was preread from then
// on.
func (p *ProxyPass) config(s *Session, t *try) splice.Config {
	c := splice.Config{
		Timeout: time.Duration(p.Timeout), HalfClose: p.HalfClose, BufferSize: int(p.BufferSize),
		Preread: s.preread, FirstByte: t.gotFirstByte,
	}
	s.preread = nil
	return c
}

// moved accounts for a session that was connected and has ended.
func (p *ProxyPass) moved(s *Session, t *try, reason splice.Reason, counts splice.Counts, preread int) {
	s.received.Store(counts.FromClient)
	s.sent.Store(counts.ToClient)
	t.sent.Add(counts.ToUpstream) // to the PROXY header
	t.received.Store(counts.FromUpstream)
	now := time.Now()
	t.end = max(now.Sub(t.started), 1)
	if t.lease != nil {
		t.count(now)
		t.lease.Done(peer.Success, now)
	}
	if c := p.logger.Check(zapcore.DebugLevel, "session ended"); c != nil {
		c.Write(zap.Uint64("connection", s.number), zap.String("reason", reason.String()), zap.Int("preread", preread), zap.Int64("spliced", counts.Spliced))
	}
}

// bind makes the end of the server's service the session's, if so configured.
func (p *ProxyPass) bind(s *Session, t *try) {
	if p.OnServerDown == "close" && t.lease != nil {
		bound.add(s)
	}
}

// rate reads a rate in bytes per second; empty and 0 are no limit.
func rate(s *Session, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	expanded := s.expand(text)
	if expanded == "" {
		return 0, nil
	}
	n, err := parseRate(expanded)
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w", escape(expanded), err)
	}
	return n, nil
}

// parseRate reads a number of bytes with an optional k or m, as nginx has it,
// or a size such as 16KiB.
func parseRate(text string) (int64, error) {
	shift := 0
	digits := strings.ToLower(text)
	for suffix, by := range map[string]int{"kib": 10, "mib": 20, "k": 10, "m": 20} {
		if d, ok := strings.CutSuffix(digits, suffix); ok && len(d)+len(suffix) == len(digits) {
			if _, err := strconv.ParseUint(d, 10, 40); err == nil {
				digits, shift = d, by
				break
			}
		}
	}
	n, err := strconv.ParseUint(digits, 10, 40)
	if err != nil {
		return 0, errors.New("expected a number of bytes, such as 512k")
	}
	return int64(n) << shift, nil
}

// reasonOf is the condition of next_upstream that a failure to connect is.
func reasonOf(err error) peer.Conditions {
	if isTimeout(err) {
		return peer.OnTimeout
	}
	return peer.OnError
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// localError is an error of ours, not of a server.
type localError struct{ error }

// localFailure reports whether this machine could not even try.
func localFailure(err error) bool {
	if _, ok := err.(localError); ok {
		return true
	}
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EACCES} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func endpoint(addr netip.AddrPort) proxyproto.Endpoint { return proxyproto.Endpoint{Addr: addr} }
