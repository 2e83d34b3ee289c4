// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// eachKind runs a test over all kinds of connections.
func eachKind(t *testing.T, f func(t *testing.T, kind int)) {
	eachKindThat(t, func(int) bool { return true }, f)
}

// eachKindThat is for tests that are about some kinds only.
func eachKindThat(t *testing.T, fits func(kind int) bool, f func(t *testing.T, kind int)) {
	for i, k := range kinds {
		if fits(i) {
			t.Run(k.name, func(t *testing.T) { f(t, i) })
		}
	}
}

// eachKindAtOnce is for tests that mostly wait.
func eachKindAtOnce(t *testing.T, f func(t *testing.T, kind int)) {
	eachKind(t, func(t *testing.T, kind int) {
		t.Parallel()
		f(t, kind)
	})
}

func TestBigTransfersBothWaysAtOnceArriveWhole(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		const size = 8 << 20
		s := start(t, kind, Config{Timeout: patience, HalfClose: true})
		sums := make(chan [32]byte, 2)
		drain := func(c net.Conn) {
			h := sha256.New()
			_, _ = io.Copy(h, c)
			sums <- [32]byte(h.Sum(nil))
		}
		fill := func(c net.Conn, seed uint64) [32]byte {
			data := make([]byte, size)
			rng := rand.NewChaCha8([32]byte{byte(seed)})
			_, _ = rng.Read(data)
			go func() {
				// In pieces of odd sizes, so that small and large meet.
				r := rand.New(rand.NewPCG(seed, 1))
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 1+r.IntN(70000))
					if _, err := c.Write(rest[:n]); err != nil {
						break
					}
					rest = rest[n:]
				}
				closeWrite(c)
			}()
			return sha256.Sum256(data)
		}
		go drain(s.client)
		go drain(s.server)
		a, b := fill(s.client, 1), fill(s.server, 2)
		got := [][32]byte{<-sums, <-sums}
		if !(got[0] == a && got[1] == b) && !(got[0] == b && got[1] == a) {
			t.Error("what arrived is not what was sent")
		}
		if r := s.wait(t); r != Ended {
			t.Errorf("Run() = %v, want %v", r, Ended)
		}
		want := Counts{FromClient: size, ToUpstream: size, FromUpstream: size, ToClient: size}
		if runtime.GOOS == "linux" && !kinds[kind].client && !kinds[kind].upstream {
			want.Spliced = 2 * size
		}
		if c := s.Counts(); c != want {
			t.Errorf("Counts() = %+v, want %+v", c, want)
		}
	})
}

func TestBytesOfPlainConnectionsNeverPassThroughThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		testnet.Missing(t, "splice(2) is Linux's")
	}
	plain := func(kind int) bool { return !kinds[kind].client && !kinds[kind].upstream }
	eachKindThat(t, plain, testSpliced)
}

func testSpliced(t *testing.T, kind int) {
	for _, cfg := range []Config{
		{},
		{Timeout: patience},
		{HalfClose: true},
		{Preread: []byte("preread ")},
		{Timeout: patience, HalfClose: true, Preread: []byte("x"), UploadRate: 1 << 30, DownloadRate: 1 << 30},
	} {
		pre := int64(len(cfg.Preread))
		s := start(t, kind, cfg)
		expect(t, s.server, string(cfg.Preread))
		for range 20 {
			send(t, s.client, "ping")
			expect(t, s.server, "ping")
			send(t, s.server, "a longer answer")
			expect(t, s.client, "a longer answer")
		}
		closeWriteOf(t, s.client)
		expectEnd(t, s.server)
		s.server.Close()
		s.wait(t)
		want := Counts{FromClient: pre + 80, ToUpstream: pre + 80, FromUpstream: 300, ToClient: 300, Spliced: 380}
		if got := s.Counts(); got != want {
			t.Errorf("Counts() = %+v, want %+v", got, want)
		}
	}
}

func TestPrereadBytesComeFirst(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		pre := bytes.Repeat([]byte("0123456789"), 1600)
		s := start(t, kind, Config{Preread: pre})
		send(t, s.client, "and the rest")
		expect(t, s.server, string(pre)+"and the rest")
	})
}

func TestAServerThatSpeaksFirstIsHeard(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		var called atomic.Int32
		s := start(t, kind, Config{FirstByte: func() { called.Add(1) }})
		send(t, s.server, "220 ready\r\n")
		expect(t, s.client, "220 ready\r\n")
		send(t, s.server, "more")
		expect(t, s.client, "more")
		if n := called.Load(); n != 1 {
			t.Errorf("FirstByte called %d times, want 1", n)
		}
	})
}

func TestAnIdleSessionTimesOut(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		const timeout = 50 * time.Millisecond
		begin := time.Now()
		s := start(t, kind, Config{Timeout: timeout})
		if r := s.wait(t); r != TimedOut {
			t.Errorf("Run() = %v, want %v", r, TimedOut)
		}
		if d := time.Since(begin); d < timeout {
			t.Errorf("ended after %v, want at least %v", d, timeout)
		}
		expectEnd(t, s.client)
		expectEnd(t, s.server)
	})
}

func TestTrafficOneWayKeepsASessionOpen(t *testing.T) {
	eachKindAtOnce(t, func(t *testing.T, kind int) {
		const timeout = 300 * time.Millisecond
		s := start(t, kind, Config{Timeout: timeout})
		tick := time.NewTicker(timeout / 6)
		defer tick.Stop()
		for range 12 { // twice the timeout
			send(t, s.server, "x")
			expect(t, s.client, "x")
			<-tick.C
		}
		if r := s.wait(t); r != TimedOut {
			t.Errorf("Run() = %v, want %v, and only after the traffic", r, TimedOut)
		}
	})
}

func TestAbortEndsASessionThatWaits(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		s := start(t, kind, Config{})
		s.Abort()
		s.Abort()
		if r := s.wait(t); r != Aborted {
			t.Errorf("Run() = %v, want %v", r, Aborted)
		}
	})
}

func TestAbortEndsASessionWhosePeerDoesNotRead(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		s := start(t, kind, Config{})
		filled := make(chan struct{})
		go func() {
			defer close(filled)
			junk := make([]byte, 64<<10)
			for {
				if _, err := s.client.Write(junk); err != nil {
					return
				}
			}
		}()
		// Wait until it is stuck: bytes were read that are not written.
		last, still := int64(-1), 0
		for deadline := time.Now().Add(patience); still < 10 && time.Now().Before(deadline); {
			c := s.Counts()
			if c.ToUpstream == last && last > 0 {
				still++
			} else {
				still = 0
			}
			last = c.ToUpstream
			<-time.After(5 * time.Millisecond)
		}
		s.Abort()
		if r := s.wait(t); r != Aborted {
			t.Errorf("Run() = %v, want %v", r, Aborted)
		}
		<-filled
	})
}

func TestAbortBeforeRunEndsItAtOnce(t *testing.T) {
	_, c := pair(t, "tcp")
	_, u := pair(t, "tcp")
	s := New(c, u, Config{Timeout: time.Hour, UploadRate: 1})
	s.Abort()
	if r := s.Run(); r != Aborted {
		t.Errorf("Run() = %v, want %v", r, Aborted)
	}
}

func TestAResetBySideEndsTheSession(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		eachKind(t, func(t *testing.T, kind int) {
			s := start(t, kind, Config{HalfClose: false})
			one, other := s.client, s.server
			if side == "server" {
				one, other = other, one
			}
			send(t, one, "hi")
			expect(t, other, "hi")
			if c, ok := one.(*net.TCPConn); ok {
				_ = c.SetLinger(0)
			}
			one.Close()
			if r := s.wait(t); r != Ended {
				t.Errorf("Run() = %v, want %v", r, Ended)
			}
			expectEnd(t, other)
		})
	}
}

func TestAWriteToAClosedPeerEndsTheSession(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		s := start(t, kind, Config{HalfClose: true})
		s.client.Close() // its end is passed on; the server goes on sending
		expectEnd(t, s.server)
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			if _, err := s.server.Write(make([]byte, 4096)); err != nil {
				break
			}
		}
		if r := s.wait(t); r != WriteFailed && r != Ended {
			t.Errorf("Run() = %v, want %v", r, WriteFailed)
		}
	})
}

func TestARateSlowsOneDirectionOnly(t *testing.T) {
	eachKindAtOnce(t, func(t *testing.T, kind int) {
		// Two reads of 5000 bytes with a pause of 500 ms between them, twice
		// the timeout.
		const rate, size = 10000, 10000
		s := start(t, kind, Config{DownloadRate: rate, BufferSize: 5000, Timeout: 250 * time.Millisecond})
		begin := time.Now()
		data := string(make([]byte, size))
		send(t, s.server, data)
		send(t, s.client, data)
		expect(t, s.server, data)
		if d := time.Since(begin); d > 450*time.Millisecond {
			t.Errorf("the direction without a rate took %v", d)
		}
		expect(t, s.client, data)
		if d := time.Since(begin); d < 500*time.Millisecond || d > 3*time.Second {
			t.Errorf("%d bytes at %d B/s took %v", size, rate, d)
		}
		if r := s.wait(t); r != TimedOut {
			t.Errorf("Run() = %v, want %v, and not during a pause", r, TimedOut)
		}
	})
}

func TestAbortEndsAPause(t *testing.T) {
	s := start(t, 0, Config{UploadRate: 1, BufferSize: 1})
	send(t, s.client, "ab")
	expect(t, s.server, "a")
	begin := time.Now()
	s.Abort()
	s.wait(t)
	if d := time.Since(begin); d > 500*time.Millisecond {
		t.Errorf("Abort during a pause took %v", d)
	}
}

func TestClosingOneConnectionFromOutsideDoesNotWaitForTheOther(t *testing.T) {
	eachKind(t, func(t *testing.T, kind int) {
		k := kinds[kind]
		client, c := pair(t, k.network)
		server, u := pair(t, k.network)
		ended := make(chan Reason, 1)
		go func() { ended <- New(c, u, Config{}).Run() }()
		send(t, client, "x")
		expect(t, server, "x")
		go func() { // fills what the client does not read
			for {
				if _, err := server.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}()
		closed := make(chan struct{})
		go func() { u.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(patience):
			t.Fatal("Close waits")
		}
		client.Close() // lets a write to it end
		<-ended
	})
}
