// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// descriptors counts what is open, without what event loops wait with: those of
// the tests before may be about to end.
func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range d {
		if what, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && !strings.HasPrefix(what, "anon_inode:") {
			n++
		}
	}
	return n
}

func TestIdleSessionsHoldNoPipes(t *testing.T) {
	ClosePipes()
	before := descriptors(t)
	const n = 50
	sessions := make([]*started, n)
	for i := range sessions {
		sessions[i] = start(t, 0, Config{Timeout: time.Hour})
	}
	for _, s := range sessions { // each has had pipes
		send(t, s.client, "ping")
		expect(t, s.server, "ping")
		send(t, s.server, "pong")
		expect(t, s.client, "pong")
	}
	// The last pipe goes back a moment after its bytes arrived. Four sockets a
	// session: two of the session, two of its peers here.
	want := before + 4*n
	got := 0
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		ClosePipes()
		if got = descriptors(t); got == want {
			break
		}
		<-time.After(time.Millisecond)
	}
	if got != want {
		t.Errorf("%d descriptors with %d idle sessions, want %d", got, n, want)
	}
	for _, s := range sessions {
		s.client.Close()
		s.wait(t)
		s.server.Close()
	}
	ClosePipes()
	if got := descriptors(t); got != before {
		t.Errorf("%d descriptors after the sessions, %d before", got, before)
	}
}

func TestAPipeWithBytesInItIsNotUsedAgain(t *testing.T) {
	ClosePipes()
	s := start(t, 0, Config{})
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for {
			if _, err := s.client.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if c := s.Counts(); c.FromClient > c.ToUpstream && c.FromClient > 1<<20 {
			break
		}
		<-time.After(time.Millisecond)
	}
	s.Abort()
	s.wait(t)
	<-stop
	for range 3 * perPool {
		s := start(t, 0, Config{})
		send(t, s.client, "clean")
		expect(t, s.server, "clean")
		s.client.Close()
		s.wait(t)
	}
}
