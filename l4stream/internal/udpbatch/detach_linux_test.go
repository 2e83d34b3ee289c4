// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// detachedSocket is a listening socket that does not wait.
func detachedSocket(t *testing.T) (s *Socket, fd int, addr string) {
	t.Helper()
	s, c := listen(t, "udp4", "127.0.0.1:0")
	addr = c.LocalAddr().String()
	fd, err := s.Detach()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, fd, addr
}

// readable waits until there is something to read.
func readable(t *testing.T, fd int) {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	if n != 1 || err != nil {
		t.Fatalf("poll = %d, %v", n, err)
	}
}

func TestADetachedSocketServesWhatIsThereAndDoesNotWait(t *testing.T) {
	s, fd, addr := detachedSocket(t)
	if err := s.Serve(func([]Packet) bool { return true }); !errors.Is(err, ErrEmpty) {
		t.Errorf("Serve() = %v of an empty socket, want %v", err, ErrEmpty)
	}
	client := dial(t, addr)
	for range Batch + 1 {
		_, _ = client.Write([]byte("x"))
	}
	got := 0
	for got < Batch+1 {
		readable(t, fd)
		if err := s.Serve(func(ps []Packet) bool { got += len(ps); return true }); !errors.Is(err, ErrEmpty) {
			t.Errorf("Serve() = %v after all were served, want %v", err, ErrEmpty)
		}
	}
	w := s.NewSender()
	w.Add([]byte("answer"), client.LocalAddr().(*net.UDPAddr).AddrPort(), nil)
	if err := w.Flush(); err != nil {
		t.Errorf("Flush() = %v", err)
	}
	b := make([]byte, 10)
	if n, err := client.Read(b); err != nil || string(b[:n]) != "answer" {
		t.Errorf("received %q, %v, want answer", b[:n], err)
	}
}

func TestAClosedDetachedSocketTouchesNoOthersDescriptor(t *testing.T) {
	s, fd, addr := detachedSocket(t)
	w := s.NewSender()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if other != fd {
		t.Logf("descriptor %d was not given out again, but %d", fd, other)
	}
	w.Add([]byte("x"), netip.MustParseAddrPort(addr), nil)
	if err := w.Flush(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Flush() = %v, want %v", err, net.ErrClosed)
	}
	if err := s.Serve(func([]Packet) bool { return true }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve() = %v, want %v", err, net.ErrClosed)
	}
	if err := s.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Close() = %v, want %v", err, net.ErrClosed)
	}
}

func TestADetachedSocketReportsARefusalOnceAndGoesOn(t *testing.T) {
	_, gone := listen(t, "udp4", "127.0.0.1:0")
	client := dial(t, gone.LocalAddr().String())
	gone.Close()
	s, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := s.Detach()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := s.NewSender()
	w.Add([]byte("x"), netip.AddrPort{}, nil)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	readable(t, fd)
	fail := func([]Packet) bool { t.Error("a datagram from nobody"); return true }
	for _, want := range []error{syscall.ECONNREFUSED, ErrEmpty} {
		if err := s.Serve(fail); !errors.Is(err, want) {
			t.Errorf("Serve() = %v, want %v", err, want)
		}
	}
}
