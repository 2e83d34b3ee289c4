// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

type halfCloseVector struct {
	Name   string
	Config struct {
		HalfClose bool `json:"half_close"`
	}
	Steps    [][]string
	Expected struct {
		ClientReceived  string `json:"client_received"`
		BackendReceived string `json:"backend_received"`
		ClientEOF       *int   `json:"client_eof_after_step"`
		BackendEOF      *int   `json:"backend_eof_after_step"`
		SessionEnded    *int   `json:"session_ended_after_step"`
		Bytes           struct {
			FromClient  int64 `json:"received_from_client"`
			ToClient    int64 `json:"sent_to_client"`
			ToBackend   int64 `json:"sent_to_backend"`
			FromBackend int64 `json:"received_from_backend"`
		}
	}
}

// watched reads a connection to its end and notes at which step that came.
type watched struct {
	mu   sync.Mutex
	data []byte
	eof  int // 0: not yet
}

func (w *watched) read(c net.Conn, step func() int) {
	b := make([]byte, 1024)
	for {
		n, err := c.Read(b)
		w.mu.Lock()
		w.data = append(w.data, b[:n]...)
		if err == io.EOF {
			w.eof = step()
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (w *watched) state() (string, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.data), w.eof
}

// settle is how long a test looks out for what must not happen between two
// steps. nginx's steps were 50 ms apart.
const settle = 10 * time.Millisecond

func TestRecordedHalfCloses(t *testing.T) {
	b, err := os.ReadFile("testdata/half_close.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []halfCloseVector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) != 12 {
		t.Fatalf("%d recorded sessions, want 12", len(vs))
	}
	overTCP := func(kind int) bool { return kinds[kind].network != "unix" } // as they were recorded
	eachKindThat(t, overTCP, func(t *testing.T, kind int) {
		for _, v := range vs {
			t.Run(v.Name, func(t *testing.T) { v.replay(t, kind) })
		}
	})
}

func (v *halfCloseVector) replay(t *testing.T, kind int) {
	s := start(t, kind, Config{HalfClose: v.Config.HalfClose})
	var mu sync.Mutex
	step := 0
	now := func() int { mu.Lock(); defer mu.Unlock(); return step }
	var client, backend watched
	var readers sync.WaitGroup
	readers.Go(func() { client.read(s.client, now) })
	readers.Go(func() { backend.read(s.server, now) })
	ended := 0

	for i, st := range v.Steps {
		mu.Lock()
		step = i + 1
		mu.Unlock()
		c := s.client
		if st[0][0] == 'b' {
			c = s.server
		}
		switch st[0] {
		case "client_send", "backend_send":
			_, _ = io.WriteString(c, st[1]) // the session may be over
		case "client_fin", "backend_fin":
			closeWrite(c)
		case "client_close", "backend_close":
			c.Close()
		}
		due := func(at *int) bool { return at != nil && *at == i+1 }
		deadline := time.Now().Add(patience)
		for {
			_, ce := client.state()
			_, be := backend.state()
			select {
			case <-s.ended:
				ended = i + 1
			default:
			}
			if (!due(v.Expected.ClientEOF) || ce > 0) && (!due(v.Expected.BackendEOF) || be > 0) &&
				(!due(v.Expected.SessionEnded) || ended > 0) || time.Now().After(deadline) {
				break
			}
			<-time.After(time.Millisecond)
		}
		if ended == 0 {
			select {
			case <-s.ended:
				ended = i + 1
			case <-time.After(settle):
			}
		}
	}
	s.client.Close()
	s.server.Close()
	readers.Wait()

	same := func(what string, got int, want *int) {
		if want != nil && got != *want {
			t.Errorf("%s after step %d, want %d", what, got, *want)
		}
	}
	cd, ce := client.state()
	bd, be := backend.state()
	same("client's end", ce, v.Expected.ClientEOF)
	same("backend's end", be, v.Expected.BackendEOF)
	same("session's end", ended, v.Expected.SessionEnded)
	if cd != v.Expected.ClientReceived || bd != v.Expected.BackendReceived {
		t.Errorf("client received %q, backend %q, want %q, %q", cd, bd, v.Expected.ClientReceived, v.Expected.BackendReceived)
	}
	e := v.Expected.Bytes
	want := Counts{FromClient: e.FromClient, ToUpstream: e.ToBackend, FromUpstream: e.FromBackend, ToClient: e.ToClient}
	got := s.Counts()
	got.Spliced = 0
	if got != want {
		t.Errorf("Counts() = %+v, want %+v", got, want)
	}
}
