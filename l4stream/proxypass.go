// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(new(ProxyPass)) }

const defaultConnectTimeout = 60 * time.Second

// ProxyPass sends sessions to the servers of a group.
type ProxyPass struct {
	// A group of the upstream app, or one or more addresses with ports. One
	// text may hold placeholders that name a group.
	To []string `json:"to"`

	// The networks in which an address from placeholders may be. Without it,
	// placeholders can name groups only: what a client sends must not decide
	// where Caddy connects.
	AllowDynamic []string `json:"allow_dynamic,omitempty"`

	// How long connecting may take, the TLS handshake included. Default: 60s.
	ConnectTimeout caddy.Duration `json:"connect_timeout,omitempty"`

	// How long connecting to a server may take before the next one is connected
	// as well: the first to connect gets the session, and the slow connection goes
	// on in the background until it is known what becomes of it. Each further
	// server is asked after the same time. NextUpstreamTries and
	// NextUpstreamTimeout count those servers, too. It must be shorter than
	// ConnectTimeout, and goes with TCP only. Default: 0, off.
	ConnectHedge caddy.Duration `json:"connect_hedge,omitempty"`

	// How long a session may be silent in both directions. Default: 10m.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Go on to the next server when one cannot be connected: `on` (default) or
	// `off`.
	NextUpstream string `json:"next_upstream,omitempty"`

	// The number of servers tried for a session. Default: 0, all.
	NextUpstreamTries int `json:"next_upstream_tries,omitempty"`

	// The time after the first try during which another may start. Default: 0,
	// no limit.
	NextUpstreamTimeout caddy.Duration `json:"next_upstream_timeout,omitempty"`

	// What happens to the sessions of a server that is taken out, because its
	// failures disable it, or the API or a reload removes it or sets it down:
	// `keep` (default) lets them go on, `close` ends them at once. A server that
	// drains keeps its sessions. The server's `drain_timeout` ends what is left.
	OnServerDown string `json:"on_server_down,omitempty"`

	// Keep the other direction open when one side has ended its own.
	HalfClose bool `json:"half_close,omitempty"`

	// Limits in bytes per second, with placeholders. Default: none.
	UploadRate   string `json:"upload_rate,omitempty"`
	DownloadRate string `json:"download_rate,omitempty"`

	// The size of copy buffers, used where the kernel cannot move the bytes.
	// Default: 16 KiB.
	BufferSize int64 `json:"buffer_size,omitempty"`

	// The local address to connect from, with placeholders.
	Bind string `json:"bind,omitempty"`

	// Send a PROXY header of this version to the server: `v1` or `v2`.
	ProxyProtocol string `json:"proxy_protocol,omitempty"`

	// UDP: put the PROXY header in front of every datagram of the client, not of
	// a session's first only.
	ProxyProtocolEvery bool `json:"proxy_protocol_every_datagram,omitempty"`

	// Send TCP keep-alive probes on both connections.
	SocketKeepalive bool `json:"socket_keepalive,omitempty"`

	// Send small pieces at once: `on` (default) or `off`.
	NoDelay string `json:"nodelay,omitempty"`

	// TLS to the servers.
	SSL *UpstreamTLS `json:"ssl,omitempty"`

	// UDP: the number of datagrams from a client after which its next one
	// begins a new session. Default: 0, no limit.
	ProxyRequests int `json:"proxy_requests,omitempty"`

	// UDP: the number of datagrams expected for each datagram of the client; the
	// session ends when they have come. Default: no expectation.
	ProxyResponses *int `json:"proxy_responses,omitempty"`

	logger     *zap.Logger
	target     target
	nextPolicy peer.NextPolicy
}

// UpstreamTLS is TLS to the servers of a stream.
type UpstreamTLS struct {
	// Those of Caddy's http transport, and ours. server_name may have placeholders.
	clienttls.Settings

	// Do not send the name of the server in the hello (SNI).
	NoSNI bool `json:"no_sni,omitempty"`

	// The application protocols to offer, with placeholders; empty ones are left
	// out.
	ALPN []string `json:"alpn,omitempty"`

	client   *clienttls.Client
	mu       sync.Mutex // guards sessions
	sessions map[string]tls.ClientSessionCache
}

// CaddyModule returns the Caddy module information.
func (*ProxyPass) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.proxy_pass", New: func() caddy.Module { return new(ProxyPass) }}
}

// Phase implements Handler.
func (*ProxyPass) Phase() Phase { return Content }

// Provision checks the options and finds the group.
func (p *ProxyPass) Provision(ctx caddy.Context) error {
	p.logger = ctx.Logger(App{})
	if err := p.check(); err != nil {
		return err
	}
	if err := p.checkHedge(); err != nil {
		return err
	}
	p.nextPolicy = peer.NextPolicy{Timeout: time.Duration(p.NextUpstreamTimeout)}
	if p.NextUpstream != "off" {
		p.nextPolicy.Conditions = peer.OnError | peer.OnTimeout
	}
	p.ConnectTimeout = orDefault(p.ConnectTimeout, defaultConnectTimeout)
	p.Timeout = orDefault(p.Timeout, 10*time.Minute)
	if p.SSL != nil {
		var err error
		if p.SSL.client, err = clienttls.New(ctx, &p.SSL.Settings); err != nil {
			return fmt.Errorf("ssl: %w", err)
		}
		p.SSL.sessions = map[string]tls.ClientSessionCache{}
	}
	if err := p.target.provision(ctx, p); err != nil {
		return err
	}
	return p.tellChecks(ctx)
}

// tellChecks tells the checks of the group how this handler talks TLS to its
// servers. Without ssl there is nothing to tell: the TLS of clients, if they use
// it, may pass through to servers.
func (p *ProxyPass) tellChecks(ctx caddy.Context) error {
	if p.SSL == nil || !p.target.isGroup(p) {
		return nil
	}
	c := *p.SSL.client
	c.Config, c.NoSNI = c.Config.Clone(), p.SSL.NoSNI
	for _, name := range p.SSL.ALPN {
		if name != "" && !strings.Contains(name, "{") {
			c.Config.NextProtos = append(c.Config.NextProtos, name)
		}
	}
	return upstream.TellChecks(ctx, p.To[0], &c)
}

func orDefault(d caddy.Duration, def time.Duration) caddy.Duration {
	if d == 0 {
		return caddy.Duration(def)
	}
	return d
}

func (p *ProxyPass) check() error {
	switch {
	case p.ConnectTimeout < 0 || p.Timeout < 0 || p.NextUpstreamTimeout < 0 || p.ConnectHedge < 0:
		return errors.New("timeouts must not be negative")
	case p.NextUpstream != "" && p.NextUpstream != "on" && p.NextUpstream != "off":
		return fmt.Errorf("next_upstream %q: expected on or off", p.NextUpstream)
	case p.OnServerDown != "" && p.OnServerDown != "keep" && p.OnServerDown != "close":
		return fmt.Errorf("on_server_down %q: expected keep or close", p.OnServerDown)
	case p.NextUpstreamTries < 0:
		return fmt.Errorf("next_upstream_tries %d: must not be negative", p.NextUpstreamTries)
	case p.ProxyProtocol != "" && p.ProxyProtocol != "v1" && p.ProxyProtocol != "v2":
		return fmt.Errorf("proxy_protocol %q: expected v1 or v2", p.ProxyProtocol)
	case p.NoDelay != "" && p.NoDelay != "on" && p.NoDelay != "off":
		return fmt.Errorf("nodelay %q: expected on or off", p.NoDelay)
	case p.BufferSize < 0 || p.BufferSize > 1<<30:
		return fmt.Errorf("buffer_size %d: expected 0 to 1GiB", p.BufferSize)
	case p.ProxyRequests < 0 || p.ProxyResponses != nil && *p.ProxyResponses < 0:
		return errors.New("proxy_requests and proxy_responses must not be negative")
	}
	if len(p.AllowDynamic) > 0 && !slices.ContainsFunc(p.To, func(to string) bool { return strings.Contains(to, "{") }) {
		return errors.New("allow_dynamic goes with an address from placeholders only")
	}
	for _, r := range []struct{ name, text string }{{"upload_rate", p.UploadRate}, {"download_rate", p.DownloadRate}} {
		if r.text != "" && !strings.Contains(r.text, "{") {
			if _, err := parseRate(r.text); err != nil {
				return fmt.Errorf("%s %q: %w", r.name, r.text, err)
			}
		}
	}
	if p.Bind != "" && p.Bind != "off" && !strings.Contains(p.Bind, "{") {
		if _, err := parseBind(p.Bind); err != nil {
			return fmt.Errorf("bind %q: %w", p.Bind, err)
		}
	}
	return nil
}

// checkProtocols refuses what would do nothing, or harm.
func (p *ProxyPass) checkProtocols(tcp, udp bool) error {
	switch {
	case !udp && (p.ProxyRequests > 0 || p.ProxyResponses != nil):
		return errors.New("proxy_pass: proxy_requests and proxy_responses go with udp/ addresses only")
	case !udp && p.ProxyProtocolEvery:
		return errors.New("proxy_pass: proxy_protocol every_datagram goes with udp/ addresses only")
	case udp && p.SSL != nil:
		return errors.New("proxy_pass: ssl does not go with udp/ addresses")
	case !tcp && p.ConnectHedge > 0:
		return errors.New("proxy_pass: connect_hedge does not go with udp/ addresses")
	case !tcp && p.HalfClose:
		return errors.New("proxy_pass: half_close does not go with udp/ addresses")
	}
	return nil
}

// Cleanup releases the groups.
func (p *ProxyPass) Cleanup() error { return p.target.release() }

// network splits a server's address into what net.Dial takes.
func network(address string, udp bool) (network, target string) {
	if path, ok := strings.CutPrefix(address, "unix/"); ok {
		return "unix", path
	}
	if udp {
		return "udp", address
	}
	return "tcp", address
}

// options tell the engine what the group's method wants to know of a session.
func (p *ProxyPass) options(s *Session, group *peer.Group) peer.SessionOptions {
	o := peer.SessionOptions{Tries: p.NextUpstreamTries, Client: s.Client()}
	if key := group.Wants().Key; key != "" {
		o.Key = s.expand(key)
	}
	return o
}

// localAddr is the address that a connection is made from; the zero value for
// any.
func (p *ProxyPass) localAddr(s *Session) (netip.AddrPort, error) {
	if p.Bind == "" {
		return netip.AddrPort{}, nil
	}
	text := s.expand(p.Bind)
	if text == "" || text == "off" {
		return netip.AddrPort{}, nil
	}
	addr, err := parseBind(text)
	if err != nil {
		return addr, fmt.Errorf("bind %q: %w", escape(text), err)
	}
	return addr, nil
}

func parseBind(text string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddrPort(text); err == nil {
		return addr, nil
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.AddrPort{}, errors.New("expected an IP address, with or without a port")
	}
	return netip.AddrPortFrom(ip, 0), nil
}

// UnmarshalCaddyfile reads the directive proxy_pass of a stream server; README.md
// lists the options.
func (p *ProxyPass) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if p.To = d.RemainingArgs(); len(p.To) == 0 {
		return d.Err("proxy_pass: expected a group or one or more addresses")
	}
	if len(p.To) > 1 {
		for _, to := range p.To {
			if !strings.Contains(to, ":") && !strings.Contains(to, "/") || strings.Contains(to, "{") {
				return d.Errf("proxy_pass: unexpected %q: expected one group, or addresses with ports", to)
			}
		}
	}
	for _, to := range p.To {
		if err := checkTarget(to); err != nil {
			return d.Errf("proxy_pass: %v", err)
		}
	}
	var hedge *caddyfile.Dispenser
	options := cfg.Options{
		"allow_dynamic":         networkList(&p.AllowDynamic),
		"connect_timeout":       cfg.Duration(&p.ConnectTimeout),
		"connect_hedge":         p.unmarshalHedge(&hedge),
		"timeout":               cfg.Duration(&p.Timeout),
		"next_upstream":         cfg.Word(&p.NextUpstream, "on", "off"),
		"next_upstream_tries":   cfg.Int(&p.NextUpstreamTries, 0),
		"next_upstream_timeout": cfg.DurationOrZero(&p.NextUpstreamTimeout),
		"on_server_down":        cfg.Word(&p.OnServerDown, "keep", "close"),
		"half_close":            cfg.OnOff(&p.HalfClose),
		"upload_rate":           cfg.String(&p.UploadRate),
		"download_rate":         cfg.String(&p.DownloadRate),
		"buffer_size":           cfg.Size(&p.BufferSize, 512),
		"bind":                  cfg.String(&p.Bind),
		"proxy_protocol":        p.unmarshalProxyProtocol,
		"socket_keepalive":      cfg.OnOff(&p.SocketKeepalive),
		"nodelay":               cfg.Word(&p.NoDelay, "on", "off"),
		"proxy_requests":        cfg.Int(&p.ProxyRequests, 0),
		"proxy_responses":       cfg.IntPtr(&p.ProxyResponses, 0),
	}
	for name, set := range p.sslOptions() {
		options[name] = set
	}
	for name, set := range options {
		options[name] = func(d *caddyfile.Dispenser) error {
			if err := set(d); err != nil {
				return err
			}
			if err := p.check(); err != nil { // here, so that the error has the option's line
				return d.Errf("proxy_pass: %v", err)
			}
			return nil
		}
	}
	if err := options.Block(d, "proxy_pass", nil); err != nil {
		return err
	}
	if err := p.checkHedge(); err != nil {
		return hedge.Errf("proxy_pass: %v", err)
	}
	return nil
}

// checkTarget looks at one address; groups and placeholders are looked up later.
func checkTarget(to string) error {
	if strings.Contains(to, "{") || !strings.ContainsAny(to, ":/") {
		return nil
	}
	if err := upstream.CheckAddress(to); err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	if _, port, err := net.SplitHostPort(to); !strings.HasPrefix(to, "unix/") && (err != nil || port == "") {
		return fmt.Errorf("%s: the port is missing", to)
	}
	return nil
}

// unmarshalProxyProtocol reads `proxy_protocol v1|v2 [every_datagram]`.
func (p *ProxyPass) unmarshalProxyProtocol(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	switch {
	case len(args) == 0 || args[0] != "v1" && args[0] != "v2":
		return d.Err("proxy_protocol: expected v1 or v2")
	case len(args) > 2 || len(args) == 2 && args[1] != "every_datagram":
		return d.Errf("proxy_protocol: unexpected %q: expected every_datagram or nothing", args[1])
	}
	p.ProxyProtocol, p.ProxyProtocolEvery = args[0], len(args) == 2
	return nil
}

// sslOptions are the options of TLS to the servers; each of them turns it on.
func (p *ProxyPass) sslOptions() cfg.Options {
	ssl := new(UpstreamTLS)
	on := func(set cfg.Setter) cfg.Setter {
		return func(d *caddyfile.Dispenser) error {
			p.SSL = ssl
			return set(d)
		}
	}
	var flag bool
	return cfg.Options{
		"ssl":                       on(cfg.Flag(&flag)),
		"ssl_name":                  on(cfg.String(&ssl.ServerName)),
		"ssl_no_sni":                on(cfg.Flag(&ssl.NoSNI)),
		"ssl_alpn":                  on(cfg.Strings(&ssl.ALPN)),
		"ssl_insecure_skip_verify":  on(cfg.Flag(&ssl.InsecureSkipVerify)),
		"ssl_trusted_ca_certs":      on(cfg.TrustFiles(&ssl.CARaw)),
		"ssl_crl":                   on(cfg.Strings(&ssl.CRLFiles)),
		"ssl_protocols":             on(ssl.ParseProtocols),
		"ssl_no_session_resumption": on(cfg.Flag(&ssl.NoSessionResumption)),
		"ssl_certificate": on(func(d *caddyfile.Dispenser) error {
			if !d.Args(&ssl.ClientCertificateFile, &ssl.ClientCertificateKeyFile) {
				return d.Err("ssl_certificate: expected <certificate file> <key file> [<password file>]")
			}
			if d.NextArg() {
				ssl.ClientCertificatePasswordFile = d.Val()
			}
			if d.NextArg() {
				return d.Err("ssl_certificate: expected <certificate file> <key file> [<password file>]")
			}
			return nil
		}),
	}
}

// Interface guards
var (
	_ Handler               = (*ProxyPass)(nil)
	_ caddy.Provisioner     = (*ProxyPass)(nil)
	_ caddy.CleanerUpper    = (*ProxyPass)(nil)
	_ caddyfile.Unmarshaler = (*ProxyPass)(nil)
)
