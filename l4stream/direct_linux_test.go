// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// handle is a content handler that is a function.
type handle func(s *Session) error

func (handle) Phase() Phase { return Content }

func (h handle) Handle(s *Session) error { return h(s) }

// listenOnLoop opens a socket whose sessions are served on their event loop by h.
func listenOnLoop(t *testing.T, h handle) string {
	t.Helper()
	na, err := caddy.ParseNetworkAddress("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := new(socket)
	s.logger.Store(zap.NewNop())
	server := &Server{logger: zap.NewNop(), direct: true}
	server.sessions.open = map[*Session]struct{}{}
	server.phases[Content] = []Handler{h}
	s.push(&servers{list: []*Server{server}})
	if s.tcp, err = listenDirect(s, address{na}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destruct(); err != nil {
			t.Error(err)
		}
		if !server.sessions.wait(patience) {
			t.Error("sessions are left")
		}
	})
	return s.tcp.(*acceptor).local.Addr.String()
}

func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func TestSocketsOnALoopHaveNoDelayAndNoProbes(t *testing.T) {
	seen := make(chan [2]int, 1)
	addr := listenOnLoop(t, func(s *Session) error {
		delay, _ := unix.GetsockoptInt(s.direct.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		probes, _ := unix.GetsockoptInt(s.direct.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		seen <- [2]int{delay, probes}
		return nil
	})
	dialed(t, addr)
	if got := <-seen; got != [2]int{1, 0} {
		t.Errorf("TCP_NODELAY, SO_KEEPALIVE = %v, want 1 and 0", got)
	}
}

func TestASessionKnowsItsAddressesBeforeItHasAConnection(t *testing.T) {
	seen := make(chan [2]string, 1)
	addr := listenOnLoop(t, func(s *Session) error {
		seen <- [2]string{s.client.Addr.String(), s.local.Addr.String()}
		return nil
	})
	c := dialed(t, addr)
	if got, want := <-seen, [2]string{c.LocalAddr().String(), addr}; got != want {
		t.Errorf("client and server are %v, want %v", got, want)
	}
}

func TestAPanicOnALoopEndsItsSessionOnly(t *testing.T) {
	addr := listenOnLoop(t, func(*Session) error { panic("a handler is broken") })
	for range 3 {
		if b, err := io.ReadAll(dialed(t, addr)); len(b) > 0 || err != nil {
			t.Fatalf("received %q, %v, want the end", b, err)
		}
	}
}

func TestASessionThatMustWaitGetsAConnection(t *testing.T) {
	const hello = "hello"
	addr := listenOnLoop(t, func(s *Session) error {
		return s.waitElsewhere(func() error {
			b := make([]byte, len(hello))
			if _, err := io.ReadFull(s.Conn, b); err != nil {
				return err
			}
			_, err := s.Conn.Write(b)
			return err
		})
	})
	silent := dialed(t, addr) // keeps no other waiting
	c := dialed(t, addr)
	if _, err := io.WriteString(c, hello); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); string(b) != hello || err != nil {
		t.Errorf("received %q, %v, want %q", b, err, hello)
	}
	_ = silent.(*net.TCPConn).CloseWrite()
	if _, err := io.ReadAll(silent); err != nil {
		t.Error(err)
	}
}

func TestAbortEndsASessionThatGotAConnection(t *testing.T) {
	session := make(chan *Session, 1)
	addr := listenOnLoop(t, func(s *Session) error {
		return s.waitElsewhere(func() error {
			session <- s
			_, err := s.Conn.Read(make([]byte, 1))
			return err
		})
	})
	c := dialed(t, addr)
	(<-session).Abort()
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("received %q, %v, want the end", b, err)
	}
}

func TestAcceptingGoesOnWhenThereAreDescriptorsAgain(t *testing.T) {
	served := make(chan struct{}, 1)
	addr := listenOnLoop(t, func(*Session) error { served <- struct{}{}; return nil })
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	none := old
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err = unix.Connect(client, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
	early := false
	select {
	case <-served:
		early = true
	case <-time.After(100 * time.Millisecond): // some pauses
	}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if err != nil {
		t.Fatal(os.NewSyscallError("connect", err))
	}
	if early {
		t.Fatal("accepted without a descriptor")
	}
	select {
	case <-served:
	case <-time.After(patience):
		t.Error("nothing is accepted any more")
	}
}
