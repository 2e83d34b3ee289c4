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

// descriptors are the sockets, pipes and files that are open, each with the name
// that no other has. What event loops wait with is left out.
func descriptors(t testing.TB) map[string]bool {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for _, e := range d {
		if what, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && !strings.HasPrefix(what, "anon_inode:") {
			open[what] = true
		}
	}
	return open
}

// waitOpened waits until n descriptors are open that were not before, and no
// pipe among them. Those of earlier tests may still go meanwhile.
func waitOpened(t testing.TB, before map[string]bool, n int, when string) {
	t.Helper()
	var opened []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		ClosePipes()
		opened = opened[:0]
		pipes := 0
		for what := range descriptors(t) {
			if before[what] {
				continue
			}
			opened = append(opened, what)
			if strings.HasPrefix(what, "pipe:") {
				pipes++
			}
		}
		if len(opened) == n && pipes == 0 {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Errorf("%d descriptors more %s, want %d and no pipe: %v", len(opened), when, n, opened)
}

func TestIdleSessionsHoldNoPipes(t *testing.T) {
	for kind, k := range kinds {
		if !k.client && !k.upstream { // the others have buffers instead
			t.Run(k.name, func(t *testing.T) { idleSessionsHoldNoPipes(t, kind) })
		}
	}
}

func idleSessionsHoldNoPipes(t *testing.T, kind int) {
	ClosePipes()
	before := descriptors(t)
	const n = 50
	sessions := make([]*started, n)
	for i := range sessions {
		sessions[i] = start(t, kind, Config{Timeout: time.Hour})
	}
	for _, s := range sessions { // each has had pipes
		send(t, s.client, "ping")
		expect(t, s.server, "ping")
		send(t, s.server, "pong")
		expect(t, s.client, "pong")
	}
	// The last pipe goes back a moment after its bytes arrived. Four sockets a
	// session: two of the session, two of its peers here.
	waitOpened(t, before, 4*n, "with idle sessions")
	for _, s := range sessions {
		s.client.Close()
		s.wait(t)
		s.server.Close()
	}
	waitOpened(t, before, 0, "after the sessions")
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
