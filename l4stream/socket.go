// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/pools"
)

// address is one socket to listen on.
type address struct {
	caddy.NetworkAddress
}

// parseListen reads a listen address; a range of ports is several.
func parseListen(text string) ([]address, error) {
	na, err := caddy.ParseNetworkAddress(text)
	if err != nil {
		return nil, err
	}
	switch {
	case na.IsUnixNetwork() && na.Network == "unix":
		return []address{{na}}, nil
	case na.Network != "tcp" && na.Network != "tcp4" && na.Network != "tcp6" &&
		na.Network != "udp" && na.Network != "udp4" && na.Network != "udp6":
		return nil, fmt.Errorf("network %q: expected a port, udp/ and a port, or unix//path", na.Network)
	case na.StartPort == 0:
		return nil, errors.New("the port is missing")
	}
	var out []address
	for i := range na.PortRangeSize() {
		out = append(out, address{na.At(i)})
	}
	return out, nil
}

func (a address) udp() bool { return len(a.Network) >= 3 && a.Network[:3] == "udp" }

func (a address) key() string { return a.String() }

// servers are those of one configuration on one address. The first is the
// default.
type servers struct {
	list []*Server
}

// binding is what one configuration wants of one address.
type binding struct {
	address address
	servers servers
	socket  *socket // while open
}

func (b *binding) add(s *Server) error {
	if slices.Contains(b.servers.list, s) {
		return fmt.Errorf("listen %s: given twice", b.address)
	}
	if b.address.udp() && len(b.servers.list) > 0 {
		return fmt.Errorf("listen %s: another server has it; UDP servers cannot be told apart by name", b.address)
	}
	if len(b.servers.list) > 0 && len(s.names) == 0 && slices.ContainsFunc(b.servers.list, func(x *Server) bool { return len(x.names) == 0 }) {
		return fmt.Errorf("listen %s: another server without server_name has it", b.address)
	}
	if len(s.names) == 0 { // the default
		b.servers.list = slices.Insert(b.servers.list, 0, s)
		return nil
	}
	b.servers.list = append(b.servers.list, s)
	return nil
}

// socket is an open listener that configurations hand on. The configuration
// started last gets what comes in.
type socket struct {
	key    string
	tcp    io.Closer
	udp    *udpSocket
	logger atomic.Pointer[zap.Logger]

	mu      sync.Mutex // guards stack
	stack   []*servers
	current atomic.Pointer[servers]
}

var sockets = pools.New("stream socket")

// open listens, or joins a socket that is open, and directs it to b.
func (b *binding) open(logger *zap.Logger) error {
	v, _, err := sockets.LoadOrNew(b.address.key(), func() (caddy.Destructor, error) {
		return listen(b.address, &b.servers)
	})
	if err != nil {
		return err
	}
	b.socket = v.(*socket)
	b.socket.logger.Store(logger)
	b.socket.push(&b.servers)
	return nil
}

// close gives the socket back. It may be called more than once.
func (b *binding) close() error {
	if b.socket == nil {
		return nil
	}
	s := b.socket
	b.socket = nil
	s.drop(&b.servers)
	_, err := sockets.Delete(s.key)
	return err
}

// listen opens a socket for its first servers.
func listen(a address, first *servers) (*socket, error) {
	s := &socket{key: a.key()}
	s.logger.Store(zap.NewNop())
	s.current.Store(first)
	if a.udp() {
		var err error
		if s.udp, err = listenUDP(s, a); err != nil {
			return nil, err
		}
		return s, nil
	}
	direct, err := listenDirect(s, a)
	switch {
	case err != nil:
		return nil, err
	case direct != nil:
		s.tcp = direct
		return s, nil
	}
	ln, err := a.listen(net.ListenConfig{})
	if err != nil {
		return nil, err
	}
	s.tcp = ln
	go s.accept(ln)
	return s, nil
}

// listen opens a listener. As nginx's sockets, its connections have no keep-alive
// probes; socket_keepalive turns them on.
func (a address) listen(config net.ListenConfig) (net.Listener, error) {
	config.KeepAlive = -1
	ln, err := a.Listen(context.Background(), 0, config)
	if err != nil {
		return nil, err
	}
	stream, ok := ln.(net.Listener)
	if !ok {
		return nil, fmt.Errorf("network %s: %T is not a stream listener", a.Network, ln)
	}
	return stream, nil
}

// Destruct closes the socket, when no configuration holds it.
func (s *socket) Destruct() error {
	if s.udp != nil {
		return s.udp.close()
	}
	return s.tcp.Close()
}

func (s *socket) push(v *servers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stack = append(s.stack, v)
	s.useLocked(v)
}

// useLocked directs what comes in to v.
func (s *socket) useLocked(v *servers) {
	s.current.Store(v)
	if s.udp != nil {
		s.udp.reader.use(v)
	}
}

func (s *socket) drop(v *servers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stack = slices.DeleteFunc(s.stack, func(x *servers) bool { return x == v })
	if n := len(s.stack); n > 0 {
		s.useLocked(s.stack[n-1])
	}
}

// pauseAfter is how long not to accept after an error: out of descriptors, most
// likely, and closing some takes a moment.
func (s *socket) pauseAfter(err error, last time.Duration) time.Duration {
	pause := min(max(2*last, 5*time.Millisecond), time.Second)
	s.logger.Load().Error("accepting a connection", zap.String("address", s.key), zap.Duration("retrying_in", pause), zap.Error(err))
	return pause
}

// accept serves the connections of a TCP or unix socket until it is closed.
func (s *socket) accept(ln net.Listener) {
	var pause time.Duration
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
		case errors.Is(err, net.ErrClosed):
			return
		default:
			pause = s.pauseAfter(err, pause)
			time.Sleep(pause)
			continue
		}
		servers := s.current.Load()
		go newSession(servers.list[0], conn).run(servers)
	}
}
