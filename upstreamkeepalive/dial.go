// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/pires/go-proxyproto"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

var (
	errNoAddress = errors.New("the request names no server (no reverseproxy.DialInfo)")
	errProtocol  = errors.New("server does not speak HTTP/1.1 over TLS")
	errNetwork   = errors.New("network is not one that HTTP/1.1 runs over")
	errParked    = errors.New("it goes on in the background")
)

// target is where a request goes, and how.
type target struct {
	key
	tls bool
}

// host is the Host of requests that have none, which is as nginx has it.
func (g *target) host() string {
	if g.network == "unix" {
		return "localhost"
	}
	return g.address
}

// target reads the server from the request's context. name is what its
// certificate is for by default; empty: the host of its address.
func (t *Transport) target(req *http.Request, name string) (target, error) {
	di, ok := reverseproxy.GetDialInfo(req.Context())
	if !ok {
		return target{}, errNoAddress
	}
	switch di.Network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		return target{}, errNetwork
	}
	g := target{key: key{network: di.Network, address: di.Address, identity: t.plain}}
	if t.tlsConfig == nil || slices.Contains(t.TLS.ExceptPorts, di.Port) && di.Port != "" {
		return g, nil
	}
	g.tls = true
	g.identity = t.secure
	g.server = t.tlsConfig.ServerName
	switch {
	case g.server == "":
		g.server = cmp.Or(name, di.Host)
	case strings.Contains(g.server, "{"):
		if repl, ok := req.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			g.server = repl.ReplaceAll(g.server, "")
		}
	}
	return g, nil
}

// dialing is what Abort breaks while there is no connection yet.
type dialing struct{ cancel context.CancelFunc }

func (d *dialing) Abort() { d.cancel() }

// open connects to g. connect_timeout covers the TLS handshake too.
func (t *Transport) open(x *trip, g *target) (*conn, *exchange.Error) {
	if x.a.Race != nil {
		return t.await(x, g)
	}
	ctx, cancel := context.WithTimeout(x.req.Context(), t.connectTimeout)
	defer cancel()
	if !x.a.Attach(&dialing{cancel}) {
		return nil, x.gone("connect")
	}
	c, op, err := t.connect(ctx, t.proxyHeader(x.req), g)
	aborted := x.a.Detach()
	if err == nil && !aborted {
		return c, nil
	}
	if c != nil {
		c.closeNow()
	}
	if aborted || x.req.Context().Err() != nil {
		return nil, x.gone(op)
	}
	return nil, &exchange.Error{Kind: connectKind(ctx, err), Op: op, Err: err}
}

// connect returns the operation that failed with the error. It may run when the
// request has ended.
func (t *Transport) connect(ctx context.Context, header *proxyproto.Header, g *target) (c *conn, op string, err error) {
	raw, err := t.dialer.DialContext(ctx, g.network, g.address)
	if err != nil {
		return nil, "connect", err
	}
	c = newConn(raw, time.Now())
	if header != nil {
		c.wd, _ = ctx.Deadline()
		_ = raw.SetWriteDeadline(c.wd)
		if _, err = header.WriteTo(raw); err != nil {
			c.closeNow()
			return nil, "proxy protocol", err
		}
	}
	if g.tls {
		if err = t.handshake(ctx, c, g); err != nil {
			c.closeNow()
			return nil, "tls handshake", err
		}
	}
	t.cache.opened(c, &g.key)
	return c, "", nil
}

func (t *Transport) handshake(ctx context.Context, c *conn, g *target) error {
	if d := time.Duration(t.TLS.HandshakeTimeout); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	c.gate = &gate{Conn: c.raw}
	tc := tls.Client(c.gate, t.sessions.config(t.tlsConfig, &g.key))
	if err := tc.HandshakeContext(ctx); err != nil {
		return err
	}
	state := tc.ConnectionState()
	if p := state.NegotiatedProtocol; p != "" && p != "http/1.1" {
		return errProtocol
	}
	c.nc, c.tlsState = tc, &state
	// HandshakeContext may have used deadlines.
	c.rd, c.wd = time.Time{}, time.Time{}
	return nil
}

// proxyHeader describes the client's connection, if servers are to be told.
func (t *Transport) proxyHeader(req *http.Request) *proxyproto.Header {
	version := byte(2)
	switch t.ProxyProtocol {
	case "":
		return nil
	case "v1":
		version = 1
	}
	info, _ := caddyhttp.GetVar(req.Context(), "reverse_proxy.proxy_protocol_info").(reverseproxy.ProxyProtocolInfo)
	src := info.AddrPort
	if !src.IsValid() {
		return &proxyproto.Header{Version: version, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	}
	return proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(unmapped(src)), localAddr(req, unmapped(src)))
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// localAddr is the address that the client connected to, if it is of the same
// family, and the unspecified address otherwise (as Caddy sends it).
func localAddr(req *http.Request, src netip.AddrPort) net.Addr {
	if l, ok := req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		if dst := unmapped(l.AddrPort()); dst.Addr().Is4() == src.Addr().Is4() {
			return net.TCPAddrFromAddrPort(dst)
		}
	}
	if src.Addr().Is4() {
		return &net.TCPAddr{IP: net.IPv4zero}
	}
	return &net.TCPAddr{IP: net.IPv6zero}
}
