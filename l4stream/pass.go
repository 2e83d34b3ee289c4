// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

func init() {
	caddy.RegisterModule(Pass{})
	caddy.RegisterModule(PassListener{})
}

// Pass hands the connection to another listener of this process, as if it had
// been accepted there: to a stream server, or to an HTTP server whose listener
// has the wrapper stream_pass. The client's address is kept, and TLS that was
// terminated stays so.
type Pass struct {
	// The address of the listener, as it is written there; with placeholders.
	To string `json:"to"`
}

// maxPasses bounds how often a connection is handed on.
const maxPasses = 10

// CaddyModule returns the Caddy module information.
func (Pass) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "stream.handlers.pass", New: func() caddy.Module { return new(Pass) }}
}

// Provision checks the address.
func (p *Pass) Provision(caddy.Context) error {
	if p.To == "" {
		return errors.New("to: expected the address of a listener")
	}
	return nil
}

// Phase implements Handler.
func (*Pass) Phase() Phase { return Content }

func (*Pass) checkProtocols(_, udp bool) error {
	if udp {
		return errors.New("pass does not go with udp/ addresses")
	}
	return nil
}

// Handle implements Handler.
func (p *Pass) Handle(s *Session) error {
	if s.passes >= maxPasses {
		return endWith(StatusInternal, "pass: %d times already", maxPasses)
	}
	to := s.expand(p.To)
	list, err := parseListen(to)
	if err != nil || len(list) != 1 {
		return endWith(StatusInternal, "pass: %q is not the address of a listener", escape(to))
	}
	for _, key := range []string{list[0].key(), anyHost(list[0]).key()} {
		if passListeners.give(key, s) {
			return nil
		}
		if servers := listening(key); servers != nil {
			p.handOver(s, servers)
			return nil
		}
	}
	return endWith(StatusOK, "pass: nothing listens on %s", escape(to))
}

// anyHost is the address of a listener that takes connections for a, too.
func anyHost(a address) address {
	if !a.IsUnixNetwork() {
		a.Host = ""
	}
	return a
}

// listening returns the servers of a TCP or unix socket of ours, nil without.
func listening(key string) (out *servers) {
	sockets.Range(func(k, v any) bool {
		if k == key && v.(*socket).tcp != nil {
			out = v.(*socket).current.Load()
		}
		return out == nil
	})
	return out
}

// handOver begins another session with the connection of s.
func (p *Pass) handOver(s *Session, servers *servers) {
	next := newSession(servers.list[0], s.Conn)
	next.raw.Store(s.raw.Load())
	next.passes = s.passes + 1
	next.client, next.peer, next.local = s.client, s.peer, s.local
	next.header, next.tls, next.cert, next.preread = s.header, s.tls, s.cert, s.preread
	s.Conn, s.preread = nil, nil
	go next.run(servers)
}

// UnmarshalCaddyfile reads `pass <address>`.
func (p *Pass) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("pass: got %d arguments, expected the address of a listener", len(args))
	}
	if p.To = args[0]; !strings.Contains(p.To, "{") {
		if list, err := parseListen(p.To); err != nil || len(list) != 1 {
			return d.Errf("pass: %q is not the address of a listener", p.To)
		}
	}
	return cfg.NoBlock(d, "pass")
}

// PassListener is a listener wrapper for HTTP servers: their listeners also
// accept the connections that `pass` of a stream server hands to them.
type PassListener struct{}

// CaddyModule returns the Caddy module information.
func (PassListener) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.stream_pass", New: func() caddy.Module { return new(PassListener) }}
}

// WrapListener implements caddy.ListenerWrapper.
func (*PassListener) WrapListener(ln net.Listener) net.Listener {
	return passListeners.wrap(ln)
}

// UnmarshalCaddyfile reads `stream_pass`.
func (*PassListener) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return cfg.Bare(d, d.Val())
}

// passListeners are the wrapped listeners of this process by address; the one
// opened last takes what is passed.
var passListeners = passRegistry{byKey: map[string][]*passListener{}}

type passRegistry struct {
	mu    sync.Mutex // guards byKey
	byKey map[string][]*passListener
}

func (r *passRegistry) wrap(ln net.Listener) net.Listener {
	l := &passListener{Listener: ln, key: listenerKey(ln.Addr()), passed: make(chan net.Conn), accepted: make(chan accepted), closed: make(chan struct{})}
	r.mu.Lock()
	r.byKey[l.key] = append(r.byKey[l.key], l)
	r.mu.Unlock()
	go l.acceptAll()
	return l
}

func listenerKey(addr net.Addr) string {
	switch a := addr.(type) {
	case *net.TCPAddr:
		host := ""
		if !a.IP.IsUnspecified() {
			host = a.IP.String()
		}
		return address{caddy.NetworkAddress{Network: "tcp", Host: host, StartPort: uint(a.Port), EndPort: uint(a.Port)}}.key()
	case *net.UnixAddr:
		return address{caddy.NetworkAddress{Network: "unix", Host: a.Name}}.key()
	}
	return addr.String()
}

// give hands the connection of s to the listener opened last. False: there is
// none.
func (r *passRegistry) give(key string, s *Session) bool {
	if !r.has(key) || !r.giveConn(key, s.unread()) {
		return false
	}
	s.Conn = nil
	return true
}

func (r *passRegistry) has(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey[key]) > 0
}

func (r *passRegistry) giveConn(key string, conn net.Conn) bool {
	r.mu.Lock()
	list := r.byKey[key]
	r.mu.Unlock()
	for i := len(list) - 1; i >= 0; i-- {
		select {
		case list[i].passed <- conn:
			return true
		case <-list[i].closed:
		}
	}
	return false
}

func (r *passRegistry) remove(l *passListener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.byKey[l.key]
	for i, x := range list {
		if x == l {
			r.byKey[l.key] = append(list[:i:i], list[i+1:]...)
		}
	}
	if len(r.byKey[l.key]) == 0 {
		delete(r.byKey, l.key)
	}
}

// passListener accepts from a listener and from pass.
type passListener struct {
	net.Listener
	key      string
	passed   chan net.Conn
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

func (l *passListener) acceptAll() {
	for {
		conn, err := l.Listener.Accept()
		select {
		case l.accepted <- accepted{conn, err}:
		case <-l.closed:
			// accepted while the configuration changes: it is the next one's
			if conn != nil && !passListeners.giveConn(l.key, conn) {
				_ = conn.Close()
			}
			return
		}
		if err != nil && !isTimeout(err) {
			return
		}
	}
}

// Accept implements net.Listener.
func (l *passListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case conn := <-l.passed:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *passListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		passListeners.remove(l)
	})
	return l.Listener.Close()
}

// Interface guards
var (
	_ Handler               = (*Pass)(nil)
	_ caddy.Provisioner     = (*Pass)(nil)
	_ caddyfile.Unmarshaler = (*Pass)(nil)
	_ caddy.ListenerWrapper = (*PassListener)(nil)
	_ caddyfile.Unmarshaler = (*PassListener)(nil)
)
