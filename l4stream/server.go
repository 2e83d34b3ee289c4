// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
)

// Server handles the sessions that come in on some addresses.
type Server struct {
	// Where to listen: Caddy network addresses such as `:3306`, `127.0.0.1:53`,
	// `udp/:53`, `unix//run/x.sock`; ports may be ranges. Several servers on the
	// same address are told apart by `server_name`.
	Listen []string `json:"listen"`

	// The names in a TLS client's hello (SNI) that choose this server among those
	// on the same address: exact, `*.example.com`, `.example.com`, `www.*`, or a
	// regular expression after `~`, in nginx's order of preference. The first
	// server of an address takes what fits none. An empty name fits no client: in
	// front of others it makes {stream.server_name} empty.
	ServerName []string `json:"server_name,omitempty"`

	// What happens to a session. The order is that of the handlers' phases, and
	// within a phase the order here. Exactly one handler is a content handler.
	HandlersRaw []json.RawMessage `json:"handle,omitempty" caddy:"namespace=stream.handlers inline_key=handler"`

	// How much of what a client sends first may be looked at. Default: 16 KiB.
	PrereadBufferSize int64 `json:"preread_buffer_size,omitempty"`

	// How long to wait for it. Default: 30s.
	PrereadTimeout caddy.Duration `json:"preread_timeout,omitempty"`

	// UDP: the number of sessions that may be open at once on each address; more
	// begin no session, their datagrams are dropped. Default: 0, no limit.
	MaxUDPSessions int `json:"max_udp_sessions,omitempty"`

	name      string
	logger    *zap.Logger
	addresses []address
	phases    [Log + 1][]Handler
	content   Handler
	direct    bool // no handler waits
	udpWaits  bool // one may keep datagrams waiting
	names     []serverName
	sessions  registry
}

// Defaults of preread, nginx's.
const (
	defaultPrereadBuffer  = 16 << 10
	defaultPrereadTimeout = 30 * time.Second
)

func (s *Server) provision(ctx caddy.Context, name string, logger *zap.Logger) error {
	s.name, s.logger = name, logger
	s.sessions.open = map[*Session]struct{}{}
	if len(s.Listen) == 0 {
		return fmt.Errorf("listen is missing")
	}
	if err := s.readAddresses(); err != nil {
		return err
	}
	if s.MaxUDPSessions < 0 {
		return fmt.Errorf("max_udp_sessions %d: must not be negative", s.MaxUDPSessions)
	}
	if s.PrereadBufferSize < 0 || s.PrereadTimeout < 0 {
		return fmt.Errorf("preread_buffer_size and preread_timeout must not be negative")
	}
	if s.PrereadBufferSize == 0 {
		s.PrereadBufferSize = defaultPrereadBuffer
	}
	if s.PrereadTimeout == 0 {
		s.PrereadTimeout = caddy.Duration(defaultPrereadTimeout)
	}
	if err := s.readNames(); err != nil {
		return err
	}
	return s.loadHandlers(ctx)
}

// readAddresses replaces placeholders of the environment and expands ranges.
func (s *Server) readAddresses() error {
	s.addresses = nil
	for _, text := range s.Listen {
		known, err := caddy.NewReplacer().ReplaceOrErr(text, true, true)
		if err != nil {
			return fmt.Errorf("listen %s: %w", text, err)
		}
		list, err := parseListen(known)
		if err != nil {
			return fmt.Errorf("listen %s: %w", text, err)
		}
		s.addresses = append(s.addresses, list...)
	}
	return nil
}

func (s *Server) loadHandlers(ctx caddy.Context) error {
	mods, err := ctx.LoadModule(s, "HandlersRaw")
	if err != nil {
		return err
	}
	for _, mod := range mods.([]any) {
		h, ok := mod.(Handler)
		if !ok {
			return fmt.Errorf("%T is not a stream handler", mod)
		}
		phase := h.Phase()
		if phase == Content {
			if s.content != nil {
				return fmt.Errorf("more than one content handler: expected one of proxy_pass, return and pass")
			}
			s.content = h
		}
		s.phases[phase] = append(s.phases[phase], h)
		if checker, ok := h.(protocolChecker); ok {
			if err := checker.checkProtocols(s.listens()); err != nil {
				return err
			}
		}
	}
	if s.content == nil {
		return fmt.Errorf("no content handler: expected proxy_pass, return or pass")
	}
	slices.SortStableFunc(s.phases[PostAccept], func(a, b Handler) int { return rank(a) - rank(b) })
	handlers := slices.Concat(s.phases[:]...)
	s.direct, s.udpWaits = !slices.ContainsFunc(handlers, mayWait), slices.ContainsFunc(handlers, udpMayWait)
	if p, ok := s.content.(*ProxyPass); ok {
		p.target.checkKey(ctx, s.exists)
	}
	return nil
}

// exists reports whether a placeholder has a value when a server is chosen for
// a session. Other modules may define any with a namespace of their own.
func (s *Server) exists(name string) bool {
	switch name, ours := strings.CutPrefix(name, placeholderPrefix); {
	case !ours:
		return strings.Contains(name, ".") && !strings.HasPrefix(name, "http.")
	case strings.HasPrefix(name, "upstream_"): // only afterwards
		return false
	case strings.HasPrefix(name, "vars."):
		return s.defines(strings.TrimPrefix(name, "vars."))
	case strings.HasPrefix(name, tlvPrefix):
		_, err := proxyproto.ParseTLVName(strings.TrimPrefix(name, tlvPrefix))
		return err == nil
	default:
		return variables[name] != nil
	}
}

// defines reports whether one of the handlers makes a variable of that name.
func (s *Server) defines(variable string) bool {
	return slices.ContainsFunc(s.phases[PostAccept], func(h Handler) bool {
		d, ok := h.(interface{ defines() string })
		return ok && d.defines() == variable
	})
}

// rank is the order within post_accept, nginx's: variables see the address that
// realip has found.
func rank(h Handler) int {
	switch h.(type) {
	case *ProxyProtocol:
		return 0
	case *RealIP:
		return 1
	}
	return 2
}

// protocolChecker is a handler that does not fit every kind of listener.
type protocolChecker interface {
	checkProtocols(tcp, udp bool) error
}

// listens says what the server's addresses are; unix sockets count as TCP.
func (s *Server) listens() (tcp, udp bool) {
	udp = slices.ContainsFunc(s.addresses, address.udp)
	tcp = slices.ContainsFunc(s.addresses, func(a address) bool { return !a.udp() })
	return tcp, udp
}

func (s *Server) start() error {
	for _, phase := range s.phases {
		for _, h := range phase {
			if starter, ok := h.(interface{ start() error }); ok {
				if err := starter.start(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// run runs one TCP session.
func (s *Session) run(b *servers) {
	s.server.sessions.add(s)
	s.do(func() error {
		if err := s.phase(PostAccept); err != nil {
			return err
		}
		if len(b.list) > 1 {
			if err := s.choose(b); err != nil {
				return err
			}
		}
		return s.runPhases()
	})
}

// errAway is returned for a session that goes on elsewhere, which owns it from
// then on.
var errAway = errors.New("l4stream: the session goes on elsewhere")

// do ends the session with the outcome of f, unless it is away.
func (s *Session) do(f func() error) {
	away := false
	defer func() {
		if panicked := recover(); panicked != nil || !away {
			s.finish(panicked)
		}
	}()
	switch err := f(); err {
	case nil:
		s.status = StatusOK
	case errAway:
		away = true
	default:
		s.end(err)
	}
}

// runPhases runs what follows post_accept, up to the content.
func (s *Session) runPhases() error {
	for p := Preaccess; p <= Content; p++ {
		if err := s.phase(p); err != nil {
			return err
		}
	}
	return nil
}

// phase runs the handlers of one phase.
func (s *Session) phase(p Phase) error {
	s.debugPhase(p)
	for _, h := range s.server.phases[p] {
		if err := h.Handle(s); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) debugPhase(p Phase) {
	if c := s.server.logger.Check(zapcore.DebugLevel, "phase"); c != nil {
		c.Write(zap.String("phase", p.String()), zap.Uint64("connection", s.number),
			zap.String("server", s.server.name), zap.Int("handlers", len(s.server.phases[p])))
	}
}

// end sets the status that err stands for, and logs what is worth it.
func (s *Session) end(err error) {
	s.status = statusOf(err)
	level := zapcore.InfoLevel
	switch {
	case s.status == StatusOK || s.aborted.Load():
		level = zapcore.DebugLevel
	case blamesClient(err):
	case s.status == StatusInternal || s.status == StatusBadGateway:
		level = zapcore.ErrorLevel
	}
	if c := s.server.logger.Check(level, "session ended early"); c != nil {
		c.Write(zap.String("remote_addr", addrText(s.client)), zap.String("server", s.server.name),
			zap.Int("status", s.status), zap.Error(err))
	}
}

// finish runs whatever ended the session, a panic included: log handlers, then
// the clean-up.
func (s *Session) finish(panicked any) {
	if panicked != nil {
		s.status = StatusInternal
		s.server.logger.Error("panic in a handler", zap.Any("panic", panicked), zap.Stack("stack"))
	}
	s.ended = time.Now()
	for _, t := range s.tries {
		if t.lease != nil {
			t.lease.Done(peer.None, s.ended) // does nothing if it has been given back
		}
	}
	s.debugPhase(Log)
	for _, h := range s.server.phases[Log] {
		s.log(h)
	}
	if s.bound != nil {
		bound.remove(s)
	}
	for _, giveBack := range s.limits {
		giveBack()
	}
	if s.Conn != nil {
		_ = s.Conn.Close()
	}
	if s.direct != nil {
		s.direct.close()
	}
	s.server.sessions.remove(s)
}

// log runs one log handler; a broken one keeps nothing from being cleaned up.
func (s *Session) log(h Handler) {
	defer func() {
		if p := recover(); p != nil {
			s.server.logger.Error("panic in a log handler", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	if err := h.Handle(s); err != nil {
		s.server.logger.Error("log handler", zap.Error(err))
	}
}

// registry holds the running sessions of a server.
type registry struct {
	mu     sync.Mutex // guards what follows
	open   map[*Session]struct{}
	closed bool // sessions are being aborted; new ones are at once
	empty  chan struct{}
}

func (r *registry) add(s *Session) {
	r.mu.Lock()
	r.open[s] = struct{}{}
	closed := r.closed
	r.mu.Unlock()
	if closed {
		s.Abort()
	}
}

func (r *registry) none() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open) == 0
}

func (r *registry) remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, s)
	if len(r.open) == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
}

func (r *registry) abortAll() {
	r.mu.Lock()
	r.closed = true
	list := make([]*Session, 0, len(r.open))
	for s := range r.open {
		list = append(list, s)
	}
	r.mu.Unlock()
	for _, s := range list {
		s.Abort()
	}
}

// drain waits until no session is left, at most for timeout, then aborts the
// rest and waits a moment for their logs.
func (r *registry) drain(timeout time.Duration) {
	if r.wait(timeout) {
		return
	}
	r.abortAll()
	r.wait(time.Second)
}

func (r *registry) wait(timeout time.Duration) bool {
	r.mu.Lock()
	if len(r.open) == 0 {
		r.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	r.empty = empty
	r.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-time.After(timeout):
		return false
	}
}
