// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/evloop"
)

// The tests of sessions run over relays, too, where those can be used.
func init() {
	kinds = append(kinds, kinds[0], kinds[1])
	relays := map[int]bool{}
	for i := len(kinds) - 2; i < len(kinds); i++ {
		kinds[i].name = "relay " + kinds[i].name
		relays[i] = true
	}
	newRunner = func(kind int, c, u net.Conn, cfg Config) runner {
		if !relays[kind] || cfg.UploadRate+cfg.DownloadRate > 0 {
			return New(c, u, cfg)
		}
		return newRelay(kinds[kind].network == "tcp", c, u, cfg)
	}
	runners = append(runners, struct {
		name string
		run  func(c, u net.Conn)
	}{"relay", func(c, u net.Conn) { newRelay(true, c, u, Config{Timeout: 10 * time.Minute}).Run() }})
}

// relay is a relay as a runner.
type relay struct {
	Relay
	ended     chan Reason
	connected chan time.Time
	failed    chan error
}

func newRelay(tcp bool, c, u net.Conn, cfg Config) *relay {
	client, upstream, ok := Detach(c, u)
	if !ok {
		panic("a connection that is not plain")
	}
	return relayOf(tcp, client, upstream, cfg)
}

func relayOf(tcp bool, client, upstream int, cfg Config) *relay {
	loop, err := evloop.Acquire()
	if err != nil {
		panic(err)
	}
	r := &relay{ended: make(chan Reason, 1), connected: make(chan time.Time, 1), failed: make(chan error, 1)}
	r.Init(loop, client, upstream, tcp, cfg, r)
	return r
}

func (r *relay) Run() Reason {
	r.Start(false)
	return <-r.ended
}

func (r *relay) Connected(now time.Time) { r.connected <- now }
func (r *relay) NotConnected(err error)  { r.failed <- err }
func (r *relay) Ended(reason Reason)     { r.ended <- reason }

// connecting is a relay whose upstream socket is being connected to addr.
func connecting(t *testing.T, addr net.Addr, timeout time.Duration) (client net.Conn, fd int, r *relay) {
	t.Helper()
	client, c := pair(t, "tcp")
	fd, _ = duplicate(c)
	c.Close()
	up, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := addr.(*net.TCPAddr)
	to := &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
	if err := unix.Connect(up, to); err != unix.EINPROGRESS {
		t.Fatalf("connect = %v, want %v", err, unix.EINPROGRESS)
	}
	r = relayOf(true, fd, up, Config{})
	r.Connecting(to, timeout)
	r.Start(false)
	return client, fd, r
}

func TestARelayConnectsItsServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, _, r := connecting(t, l.Addr(), patience)
	<-r.connected
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	send(t, client, "ping")
	expect(t, server, "ping")
	send(t, server, "pong")
	expect(t, client, "pong")
	client.Close()
	if reason := <-r.ended; reason != Ended {
		t.Errorf("ended with %v, want %v", reason, Ended)
	}
	expectEnd(t, server)
}

func TestARelayThatCannotConnectGivesTheClientBack(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	full := blackHole(t)
	for _, c := range []struct {
		name    string
		addr    net.Addr
		timeout time.Duration
		want    error
	}{
		{"refused", closed.Addr(), patience, syscall.ECONNREFUSED},
		{"time is up", full, 50 * time.Millisecond, os.ErrDeadlineExceeded},
	} {
		client, fd, r := connecting(t, c.addr, c.timeout)
		if err := <-r.failed; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if _, err := unix.Write(fd, []byte("sorry")); err != nil {
			t.Errorf("%s: writing to the client: %v", c.name, err)
		}
		unix.Close(fd)
		expect(t, client, "sorry")
		expectEnd(t, client)
	}
}

func TestAbortEndsConnecting(t *testing.T) {
	_, fd, r := connecting(t, blackHole(t), 0)
	r.Abort()
	if err := <-r.failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("NotConnected(%v), want %v", err, net.ErrClosed)
	}
	unix.Close(fd)
}

// blackHole is the address of a listener whose queue is full.
func blackHole(t *testing.T) net.Addr {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: sa.(*unix.SockaddrInet4).Port}
	for range 3 {
		c, err := net.DialTimeout("tcp", addr.String(), 300*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { c.Close() })
	}
	return addr
}

func TestARelayWithoutDescriptorsForPipesCopies(t *testing.T) {
	ClosePipes()
	client, c := pair(t, "tcp")
	server, u := pair(t, "tcp")
	r := newRelay(true, c, u, Config{HalfClose: true})
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	none := old
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }()
	r.Start(false)
	const size = 4 << 20
	go func() {
		_, _ = io.CopyN(client, zeros{}, size)
		closeWrite(client)
	}()
	n, err := io.Copy(io.Discard, server)
	if n != size || err != nil {
		t.Errorf("%d bytes came, %v, want %d", n, err, size)
	}
	closeWrite(server)
	<-r.ended
	if got := r.Counts(); got.ToUpstream != size || got.Spliced != 0 {
		t.Errorf("Counts() = %+v, want %d bytes and none spliced", got, size)
	}
}

func TestUrgentDataIsLeftOutAndDoesNotStopASession(t *testing.T) {
	overTCP := func(kind int) bool { return kinds[kind].network == "tcp" }
	eachKindThat(t, overTCP, func(t *testing.T, kind int) {
		s := start(t, kind, Config{})
		urgent := func() {
			raw, err := s.client.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if cerr := raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB, nil) }); cerr != nil || err != nil {
				t.Fatal(cerr, err)
			}
		}
		send(t, s.client, "one ")
		expect(t, s.server, "one ")
		urgent()
		send(t, s.client, "two ")
		expect(t, s.server, "two ")
		urgent()
		send(t, s.client, "three")
		expect(t, s.server, "three")
		send(t, s.server, "answer")
		expect(t, s.client, "answer")
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
