// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// pair returns the two ends of a connection: the peer's and the proxy's.
func pair(t testing.TB, network string) (peer, proxy net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err = net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	proxy, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close(); proxy.Close() })
	return peer, proxy
}

// wrapped hides what a connection is, as TLS does.
type wrapped struct{ net.Conn }

func (w wrapped) CloseWrite() error {
	return w.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// kinds are the combinations of connections: which of the two are hidden.
var kinds = []struct {
	name             string
	network          string
	client, upstream bool
}{
	{"tcp", "tcp", false, false},
	{"unix", "unix", false, false},
	{"client hidden", "tcp", true, false},
	{"upstream hidden", "tcp", false, true},
	{"both hidden", "tcp", true, true},
}

// runner is a Session, or a relay that takes its place.
type runner interface {
	Abort()
	Counts() Counts
	Run() Reason
}

// newRunner makes what runs a session of a kind: see relay_linux_test.go.
var newRunner = func(kind int, c, u net.Conn, cfg Config) runner { return New(c, u, cfg) }

// started is a session under test.
type started struct {
	runner
	client, server net.Conn // the peers' ends
	ended          chan Reason
}

func start(t testing.TB, kind int, cfg Config) *started {
	t.Helper()
	k := kinds[kind]
	client, c := pair(t, k.network)
	server, u := pair(t, k.network)
	if k.client {
		c = wrapped{c}
	}
	if k.upstream {
		u = wrapped{u}
	}
	s := &started{newRunner(kind, c, u, cfg), client, server, make(chan Reason, 1)}
	go func() { s.ended <- s.Run() }()
	t.Cleanup(func() { s.Abort() })
	return s
}

func (s *started) wait(t testing.TB) Reason {
	t.Helper()
	select {
	case r := <-s.ended:
		return r
	case <-time.After(patience):
		buf := make([]byte, 1<<16)
		t.Fatalf("the session does not end: %+v\n%s", s.Counts(), buf[:runtime.Stack(buf, true)])
		return 0
	}
}

func send(t testing.TB, c net.Conn, data string) {
	t.Helper()
	if _, err := io.WriteString(c, data); err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("received %.40q, %v, want %.40q (%d bytes)", b, err, want, len(want))
	}
}

func expectEnd(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Fatalf("received %.40q, %v, want the end", b, err)
	}
}

func closeWriteOf(t testing.TB, c net.Conn) {
	t.Helper()
	if !closeWrite(c) {
		t.Fatal("cannot end writing")
	}
}
