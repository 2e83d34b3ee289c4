// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"golang.org/x/sys/unix"
)

// blackHole is the address of a listener that takes no further connection.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", sa.(*unix.SockaddrInet4).Port)
	for range 3 { // until the queue is full
		c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { c.Close() })
	}
	return addr
}

func TestStreamBytesStayInTheKernel(t *testing.T) {
	const size = 3 << 20
	b := testnet.NewTCP(t, func(c net.Conn, _ int) {
		n, _ := io.Copy(io.Discard, c)
		_, _ = io.CopyN(c, zeros{}, n)
	})
	source := testnet.NewTCP(t, func(c net.Conn, _ int) { _, _ = io.CopyN(c, zeros{}, size) })
	p := serveStream(t, "", `
		server `+front("half")+` {
			proxy_pass `+b.Addr()+` {
				half_close on
				timeout 30s
			}
			access_log
		}
		server `+front("preread")+` {
			ssl_preread
			proxy_pass `+b.Addr()+` {
				half_close on
			}
			access_log
		}
		server `+front("plain")+` {
			proxy_pass `+source.Addr()+`
			access_log
		}
		server `+front("passed")+` {
			pass `+front("half")+`
		}`)
	cases := []struct {
		front     string
		up, total int64
		preread   bool
	}{{"half", size, 2 * size, false}, {"preread", size, 2 * size, true}, {"plain", 0, size, false}, {"passed", size, 2 * size, false}}
	for i, c := range cases {
		s := p.tcp(c.front)
		first := strings.Repeat("x", 100) // no ClientHello: decided with the first bytes
		if c.up > 0 {
			s.say(first)
			if _, err := io.CopyN(s, zeros{}, c.up-int64(len(first))); err != nil {
				t.Fatal(err)
			}
			s.closeWrite()
		}
		if n := len(s.rest()); int64(n) != c.total-c.up {
			t.Errorf("%s: %d bytes came back, want %d", c.front, n, c.total-c.up)
		}
		p.ended(s)
		testnet.Eventually(t, 10*time.Second, "the session's count", func() bool { return len(p.Logs("session ended")) > i })
		l := p.Logs("session ended")[i]
		spliced, preread := int64(l.Fields["spliced"].(float64)), int64(l.Fields["preread"].(float64))
		if spliced != c.total-preread {
			t.Errorf("%s: %d bytes were spliced, want %d less the %d preread", c.front, spliced, c.total, preread)
		}
		if preread > 0 != c.preread {
			t.Errorf("%s: %d bytes were preread", c.front, preread)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestStreamIdleSessionsHoldTwoDescriptors(t *testing.T) {
	b := testnet.NewLines(t, "")
	p := serveStream(t, group("g", b.Addr()), `
		server `+front("front")+` {
			proxy_pass g
		}`)
	p.tcp("front").ask("warm")
	base := p.Usage().Descriptors
	const n = 100
	for range n {
		p.tcp("front").ask("hello")
	}
	fds, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(p.PID()), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(fds) - base; got > 2*n+pipes || got < 2*n {
		t.Errorf("%d idle sessions hold %d descriptors, want %d and at most %d of idle pipes", n, got, 2*n, pipes)
	}
}
