// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/cancelwatch"
	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

func init() {
	caddy.RegisterModule(new(Transport))
}

// The defaults, nginx's own.
const (
	defaultPerProcessor = 32
	defaultRequests     = 1000
	defaultTime         = time.Hour
	defaultIdle         = time.Minute
	defaultTimeout      = time.Minute
	defaultHeaderLimit  = 64 << 10
	minHeaderLimit      = 1 << 10
	maxHeaderLimit      = 16 << 20
)

// TLS is TLS to the upstream servers.
type TLS = clienttls.Settings

// Transport is an HTTP/1.1 client transport for Caddy's reverse_proxy that keeps
// connections to the upstream servers as nginx does.
//
// It speaks HTTP/1.1 (or 1.0) over TCP, unix sockets and TLS. For HTTP/2 and
// HTTP/3 upstreams use Caddy's own http transport.
type Transport struct {
	// How many idle connections are kept, to all servers together. The
	// connection used last is taken first, and the one that has been idle for
	// longest is closed when there are too many. 0 keeps none. Default: that of
	// the upstream group; without one, 32 times the number of processors.
	Keepalive *int `json:"keepalive,omitempty"`

	// Whether the idle connections are those of this handler alone, and end
	// with its configuration. Without it, handlers that set keepalive and belong
	// to the same upstream group share them, and they survive a reload. Always
	// so without a group, and when neither the group nor this handler sets
	// keepalive.
	KeepaliveLocal bool `json:"keepalive_local,omitempty"`

	// How many requests are sent over a connection before it is closed.
	// Default: that of the group, or 1000.
	KeepaliveRequests int `json:"keepalive_requests,omitempty"`

	// How old a connection may be for it to be kept for another request. It is
	// looked at when a request ends. Default: that of the group, or 1h.
	KeepaliveTime caddy.Duration `json:"keepalive_time,omitempty"`

	// How long a connection stays open without being used. Default: that of the
	// group, or 60s.
	KeepaliveTimeout caddy.Duration `json:"keepalive_timeout,omitempty"`

	// How long connecting may take, the TLS handshake included. Default: 60s.
	ConnectTimeout caddy.Duration `json:"connect_timeout,omitempty"`

	// How long the server may take to accept a piece of the request: the time
	// between two write operations, not that for all of it. Default: 60s.
	SendTimeout caddy.Duration `json:"send_timeout,omitempty"`

	// How long the server may be silent while its response is awaited: the time
	// between two read operations, not that for all of it. It also ends an
	// upgraded connection (WebSocket) that is silent in both directions.
	// Default: 60s.
	ReadTimeout caddy.Duration `json:"read_timeout,omitempty"`

	// The version of requests: 1.0 or 1.1. Request bodies of unknown length
	// cannot be sent with 1.0: they are answered with 411. Whether a connection
	// is kept depends on the response alone. Default: 1.1.
	HTTPVersion string `json:"http_version,omitempty"`

	// The largest header block of a response, in bytes; a larger one is an
	// invalid header. It bounds trailers, too. Default: 64 KiB.
	ResponseHeaderLimit int `json:"response_header_limit,omitempty"`

	// The local address to connect from, an IP address with or without a port.
	// Default: the operating system chooses.
	BindAddress string `json:"bind,omitempty"`

	// The version of the PROXY protocol header sent at the start of each
	// connection: v1 or v2. Such connections serve one request each, for they
	// are the client's. Default: none.
	ProxyProtocol string `json:"proxy_protocol,omitempty"`

	// TLS to the upstream servers; the fields are those of Caddy's own http
	// transport, and ours. An empty object is TLS with the system's trusted roots.
	// The name that the certificate must be for is, by default, the host of the
	// server's line in its group. handshake_timeout can only shorten connect_timeout.
	TLS *TLS `json:"tls,omitempty"`

	limits         limits
	options        options
	connectTimeout time.Duration
	sendTimeout    time.Duration
	readTimeout    time.Duration
	headerLimit    int

	dialer    net.Dialer
	tlsConfig *tls.Config // nil without TLS; never changed
	client    *clienttls.Client
	sessions  sessions

	cache         *cache
	clients       cancelwatch.Watch // of RoundTrip
	bound         bool              // cache is the group's
	groupOff      bool              // the group keeps no connections
	left          bool              // cache is used no more, except by requests
	plain, secure *identity
}

// CaddyModule returns the Caddy module information.
func (*Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.upstream_keepalive",
		New: func() caddy.Module { return new(Transport) },
	}
}

// Provision sets t up to work without a group.
func (t *Transport) Provision(ctx caddy.Context) error {
	if err := t.check(); err != nil {
		return err
	}
	t.connectTimeout = orDefault(t.ConnectTimeout, defaultTimeout)
	t.sendTimeout = orDefault(t.SendTimeout, defaultTimeout)
	t.readTimeout = orDefault(t.ReadTimeout, defaultTimeout)
	if t.headerLimit = t.ResponseHeaderLimit; t.headerLimit == 0 {
		t.headerLimit = defaultHeaderLimit
	}
	// Idle connections are watched anyway, and reads have a limit: no probes.
	t.dialer.KeepAlive = -1
	if t.BindAddress != "" {
		addr, err := bindAddr(t.BindAddress)
		if err != nil {
			return err
		}
		t.dialer.LocalAddr = addr
	}
	if t.TLS != nil {
		var err error
		if t.client, err = clienttls.New(ctx, t.TLS); err != nil {
			return fmt.Errorf("upstream_keepalive: tls: %w", err)
		}
		t.tlsConfig = t.client.Config
		t.tlsConfig.NextProtos = []string{"http/1.1"}
	}
	t.adopt(exchange.Keepalive{})
	return t.use(newCache(), true)
}

func orDefault(d caddy.Duration, def time.Duration) time.Duration {
	if d > 0 {
		return time.Duration(d)
	}
	return def
}

func bindAddr(s string) (*net.TCPAddr, error) {
	na, err := caddy.ParseNetworkAddressWithDefaults(s, "tcp", 0)
	if err == nil && na.Network != "tcp" {
		err = errors.New("it is not a TCP address")
	}
	if err == nil && na.PortRangeSize() > 1 {
		err = errors.New("it has more than one port")
	}
	if err == nil && net.ParseIP(na.Host) == nil {
		err = errors.New("the host is not an IP address")
	}
	if err != nil {
		return nil, fmt.Errorf("upstream_keepalive: bind %q: %w", s, err)
	}
	return net.ResolveTCPAddr("tcp", na.JoinHostPort(0))
}

// check finds impossible settings. It is part of Provision, for a wrapper may
// never call Validate.
func (t *Transport) check() error {
	for _, d := range []struct {
		name  string
		value caddy.Duration
	}{
		{"keepalive_time", t.KeepaliveTime}, {"keepalive_timeout", t.KeepaliveTimeout},
		{"connect_timeout", t.ConnectTimeout}, {"send_timeout", t.SendTimeout}, {"read_timeout", t.ReadTimeout},
	} {
		if d.value < 0 {
			return fmt.Errorf("upstream_keepalive: %s is %v: it cannot be negative", d.name, time.Duration(d.value))
		}
	}
	switch {
	case t.Keepalive != nil && *t.Keepalive < 0:
		return fmt.Errorf("upstream_keepalive: keepalive is %d: it is a number of connections, 0 for none", *t.Keepalive)
	case t.KeepaliveLocal && t.Keepalive == nil:
		return errors.New("upstream_keepalive: keepalive_local means nothing without keepalive")
	case t.KeepaliveRequests < 0:
		return fmt.Errorf("upstream_keepalive: keepalive_requests is %d: it must be at least 1", t.KeepaliveRequests)
	case t.HTTPVersion != "" && t.HTTPVersion != "1.0" && t.HTTPVersion != "1.1":
		return fmt.Errorf("upstream_keepalive: http_version is %q: it is 1.0 or 1.1; for others use the http transport", t.HTTPVersion)
	case t.ResponseHeaderLimit != 0 && (t.ResponseHeaderLimit < minHeaderLimit || t.ResponseHeaderLimit > maxHeaderLimit):
		return fmt.Errorf("upstream_keepalive: response_header_limit is %d: it must be between 1 KiB and 16 MiB", t.ResponseHeaderLimit)
	case t.ProxyProtocol != "" && t.ProxyProtocol != "v1" && t.ProxyProtocol != "v2":
		return fmt.Errorf("upstream_keepalive: proxy_protocol is %q: it is v1 or v2", t.ProxyProtocol)
	}
	if _, err := t.checkKeepalive(); err != nil {
		return fmt.Errorf("upstream_keepalive: %w", err)
	}
	return nil
}

// adopt works out the limits: this handler's settings over the group's, field
// by field, over the defaults.
func (t *Transport) adopt(group exchange.Keepalive) {
	l := limits{
		connections: defaultPerProcessor * runtime.GOMAXPROCS(0),
		requests:    defaultRequests, time: defaultTime, timeout: defaultIdle,
	}
	if n := cmp.Or(t.Keepalive, group.Connections); n != nil {
		l.connections = *n
	}
	if n := cmp.Or(t.KeepaliveRequests, group.Requests); n > 0 {
		l.requests = n
	}
	if d := cmp.Or(time.Duration(t.KeepaliveTime), group.Time); d > 0 {
		l.time = d
	}
	if d := cmp.Or(time.Duration(t.KeepaliveTimeout), group.Timeout); d > 0 {
		l.timeout = d
	}
	t.options.http10 = t.HTTPVersion == "1.0"
	if t.ProxyProtocol != "" {
		l.connections = 0
	}
	t.options.close = l.connections == 0
	t.limits = l
}

// use makes ca the cache, instead of the one before. If local, nobody else
// takes the connections that t puts there.
func (t *Transport) use(ca *cache, local bool) error {
	plain, secure, err := t.identify()
	if err != nil {
		return fmt.Errorf("upstream_keepalive: %w", err)
	}
	t.leave()
	t.cache, t.left = ca, false
	t.plain, t.secure = ca.join(plain, local), ca.join(secure, local)
	return nil
}

// leave closes the idle connections that nobody else can use.
func (t *Transport) leave() {
	if t.cache == nil || t.left {
		return
	}
	t.left = true
	t.cache.leave(t.plain)
	t.cache.leave(t.secure)
	if !t.bound {
		_ = t.cache.Close()
	}
}

// storeKey is where a group keeps its cache.
const storeKey = "upstreamkeepalive"

// Bind implements exchange.Binder. The group has one cache, whose limit is for
// all its handlers, as in nginx; local only says who may take a connection.
func (t *Transport) Bind(store exchange.Store, settings exchange.Keepalive) error {
	t.groupOff = settings.Connections != nil && *settings.Connections == 0
	if _, err := t.checkKeepalive(); err != nil {
		return fmt.Errorf("upstream_keepalive: %w", err)
	}
	ca, ok := store.Shared(storeKey, func() io.Closer { return newCache() }).(*cache)
	if !ok {
		return fmt.Errorf("upstream_keepalive: the group keeps something else under %q", storeKey)
	}
	// It lives as long as the store does.
	ca.watch.Do(func() { store.OnRemove(ca.remove) })
	t.adopt(settings)
	local := true
	switch {
	case t.Keepalive != nil:
		local = t.KeepaliveLocal
	case settings.Connections != nil:
		local = settings.Local
	}
	if err := t.use(ca, local); err != nil {
		return err
	}
	t.bound = true
	return nil
}

// Cleanup closes the idle connections that end with this configuration.
// Requests may still be running, and may still begin.
func (t *Transport) Cleanup() error {
	t.leave()
	return nil
}

// idle returns a kept connection for k, nil if there is none. With unseen, one
// that can ask has not been looked at.
func (t *Transport) idle(k *key, now time.Time, unseen bool) *conn {
	if t.limits.connections == 0 {
		return nil
	}
	return t.cache.get(k, now, unseen)
}

// keep puts c into the cache if it may serve another request.
func (t *Transport) keep(c *conn, now time.Time) {
	if c.requests >= t.limits.requests || now.Sub(c.created) > t.limits.time {
		c.close()
		return
	}
	t.cache.put(c, &t.limits, now)
}

// TLSEnabled implements reverseproxy.TLSTransport.
func (t *Transport) TLSEnabled() bool { return t.TLS != nil }

// EnableTLS implements reverseproxy.TLSTransport.
func (t *Transport) EnableTLS(base *reverseproxy.TLSConfig) error {
	t.TLS = &TLS{TLSConfig: *base}
	return nil
}

// ServerTLS implements clienttls.User.
func (t *Transport) ServerTLS() (c *clienttls.Client, known bool) { return t.client, true }

// ProxyProtocolEnabled implements reverseproxy.ProxyProtocolTransport.
func (t *Transport) ProxyProtocolEnabled() bool { return t.ProxyProtocol != "" }

// RequiresContentLength implements reverseproxy.ContentLengthRequiredTransport:
// HTTP/1.0 has no chunks.
func (t *Transport) RequiresContentLength() bool { return t.HTTPVersion == "1.0" }

// OverrideHealthCheckScheme implements
// reverseproxy.HealthCheckSchemeOverriderTransport.
func (t *Transport) OverrideHealthCheckScheme(base *url.URL, port string) {
	if t.TLS != nil && !slices.Contains(t.TLS.ExceptPorts, port) {
		base.Scheme = "https"
	}
}

// RequestHeaderOps implements reverseproxy.RequestHeaderOpsTransport: as over
// Caddy's own transport, a TLS server gets its own name as Host by default.
func (t *Transport) RequestHeaderOps() *headers.HeaderOps {
	if t.TLS == nil {
		return nil
	}
	return &headers.HeaderOps{Set: http.Header{"Host": {"{http.reverse_proxy.upstream.hostport}"}}}
}

// Interface guards
var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddy.CleanerUpper                               = (*Transport)(nil)
	_ exchange.Racer                                   = (*Transport)(nil)
	_ exchange.Binder                                  = (*Transport)(nil)
	_ exchange.ConnCounter                             = (*Transport)(nil)
	_ clienttls.User                                   = (*Transport)(nil)
	_ exchange.ConnCounter                             = (*cache)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*Transport)(nil)
	_ reverseproxy.ContentLengthRequiredTransport      = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*Transport)(nil)
)
