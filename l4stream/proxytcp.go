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
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/proxyproto"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/splice"
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
	var walk peer.Session
	walk.Begin(group, p.sessionOptions(s, group))
	for {
		now := time.Now()
		lease, err := walk.Next(now)
		if err != nil {
			s.newTry(nil, group.Name(), now)
			p.logger.Error("no live upstreams", zap.String("group", group.Name()))
			return nil, nil, endWith(StatusBadGateway, "%w", err)
		}
		server := lease.Peer().Server()
		if c := p.logger.Check(zapcore.DebugLevel, "peer selected"); c != nil {
			c.Write(zap.String("group", group.Name()), zap.String("peer", server.ID),
				zap.Int64("current_weight", lease.CurrentWeight), zap.Int("tries_left", lease.TriesLeft))
		}
		t := s.newTry(lease, server.Name, now)
		up, err := p.dial(s, t, server.Address, server.Line)
		now = time.Now()
		if err == nil {
			lease.Connected(now)
			return up, t, nil
		}
		t.end = max(now.Sub(t.started), 1)
		if localFailure(err) {
			lease.Done(peer.None, now)
			return nil, nil, fmt.Errorf("connecting to %s: %w", server.Name, err)
		}
		lease.Cause = err
		lease.Done(peer.Failed, now)
		event := peer.OnError
		if isTimeout(err) {
			event = peer.OnTimeout
		}
		if s.aborted.Load() || !walk.MayRetry(&p.next, event, peer.Progress{}, now) {
			return nil, nil, endWith(StatusBadGateway, "connecting to %s: %w", server.Name, err)
		}
	}
}

// sessionOptions tells the engine of the session what the group's method wants
// to know.
func (p *ProxyPass) sessionOptions(s *Session, group *peer.Group) peer.SessionOptions {
	o := peer.SessionOptions{Tries: p.NextUpstreamTries, Client: s.Client()}
	if key := group.Wants().Key; key != "" {
		o.Key = s.expand(key)
	}
	return o
}

// dial connects to one server and says what has to be said first: a PROXY
// header, then TLS.
func (p *ProxyPass) dial(s *Session, t *try, address, line string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(p.ConnectTimeout))
	defer cancel()
	if !s.onAbort(cancel) {
		return nil, context.Canceled
	}
	network, target := network(address, false)
	local, err := p.localAddr(s, network)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{LocalAddr: local, KeepAlive: -1}
	up, err := dialer.DialContext(ctx, network, target)
	if err != nil {
		return nil, err
	}
	p.tune(up)
	p.tune(s.raw)
	if err := p.greet(ctx, s, t, up); err != nil {
		_ = up.Close()
		return nil, err
	}
	if p.SSL != nil {
		secure := tls.Client(up, p.SSL.clientConfig(s, address, line))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = up.Close()
			return nil, fmt.Errorf("tls handshake: %w", err)
		}
		up = secure
	}
	t.connect = max(time.Since(t.started), 1)
	return up, nil
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

// greet sends the PROXY header.
func (p *ProxyPass) greet(ctx context.Context, s *Session, t *try, up net.Conn) error {
	header := p.proxyHeader(s)
	if header == nil {
		return nil
	}
	deadline, _ := ctx.Deadline()
	_ = up.SetWriteDeadline(deadline)
	n, err := up.Write(header)
	t.sent.Add(int64(n))
	_ = up.SetWriteDeadline(time.Time{})
	return err
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
	c := u.config.Clone()
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(cmp.Or(line, address))
		if err != nil {
			host = line
		}
		c.ServerName = host
	}
	for _, name := range u.ALPN {
		if name = s.expand(name); name != "" {
			c.NextProtos = append(c.NextProtos, name)
		}
	}
	u.mu.Lock()
	cache := u.sessions[address]
	if cache == nil {
		cache = tls.NewLRUClientSessionCache(4)
		u.sessions[address] = cache
	}
	u.mu.Unlock()
	c.ClientSessionCache = cache
	if u.NoSNI {
		withoutSNI(c)
	}
	return c
}

// withoutSNI keeps the name out of the hello but checks the certificate for it.
func withoutSNI(c *tls.Config) {
	name, verify := c.ServerName, !c.InsecureSkipVerify
	c.ServerName, c.InsecureSkipVerify = "", true
	if !verify {
		return
	}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: c.RootCAs, DNSName: name, Intermediates: x509.NewCertPool()}
		for _, cert := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(options)
		return err
	}
}

// pump moves the bytes of a connected session until it ends.
func (p *ProxyPass) pump(s *Session, up net.Conn, t *try) error {
	upload, err := rate(s, p.UploadRate)
	if err == nil {
		var download int64
		if download, err = rate(s, p.DownloadRate); err == nil {
			p.run(s, up, t, upload, download)
			return nil
		}
	}
	_ = up.Close()
	if t.lease != nil {
		t.lease.Done(peer.None, time.Now())
	}
	return err
}

func (p *ProxyPass) run(s *Session, up net.Conn, t *try, upload, download int64) {
	session := splice.New(s.Conn, up, splice.Config{
		Timeout: time.Duration(p.Timeout), HalfClose: p.HalfClose,
		UploadRate: upload, DownloadRate: download, BufferSize: int(p.BufferSize),
		Preread: s.preread,
		FirstByte: func() {
			now := time.Now()
			d := max(now.Sub(t.started), 1)
			t.firstByte.Store(int64(d))
			if t.lease != nil {
				t.lease.Observe(peer.FirstByte, d, now)
			}
		},
	})
	if !s.onAbort(session.Abort) {
		session.Abort()
	}
	greeting := t.sent.Load()
	reason := session.Run()
	counts := session.Counts()
	s.received.Store(counts.FromClient)
	s.sent.Store(counts.ToClient)
	t.sent.Store(greeting + counts.ToUpstream)
	t.received.Store(counts.FromUpstream)
	splicedBytes.Add(counts.Spliced)
	now := time.Now()
	t.end = max(now.Sub(t.started), 1)
	if t.lease != nil {
		t.lease.Done(peer.Success, now)
	}
	if c := p.logger.Check(zapcore.DebugLevel, "session ended"); c != nil {
		c.Write(zap.Uint64("connection", s.number), zap.String("reason", reason.String()), zap.Int64("spliced", counts.Spliced))
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

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// localFailure reports whether this machine could not even try.
func localFailure(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EACCES} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func endpoint(addr netip.AddrPort) proxyproto.Endpoint { return proxyproto.Endpoint{Addr: addr} }

// splicedBytes counts what the kernel moved without this process seeing it.
var splicedBytes atomic.Int64
