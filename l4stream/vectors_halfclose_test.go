// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// halfClose is a case of kind half_close that runs.
type halfClose struct {
	t               *testing.T
	c               *testnet.Caddy
	number          int
	client, backend *side

	mu   sync.Mutex // guards step, and what side says it guards
	step int        // the number of the event that was done last, from 1
}

// side is one end of the session and what it has seen.
type side struct {
	conn     net.Conn
	received string // guarded by halfClose.mu
	eof      int    // the step after which it saw the end; guarded likewise
	closed   bool   // by itself
}

func (h *halfClose) watch(c net.Conn) *side {
	s := &side{conn: c}
	h.t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1000)
		for {
			n, err := c.Read(buf)
			h.mu.Lock()
			s.received += string(buf[:n])
			if err != nil {
				s.eof = h.step
			}
			h.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

type halfCloseWant struct {
	ClientReceived  string `json:"client_received"`
	BackendReceived string `json:"backend_received"`
	ClientEOF       *int   `json:"client_eof_after_step"`
	BackendEOF      *int   `json:"backend_eof_after_step"`
	Ended           int    `json:"session_ended_after_step"`
	Status          int
	Bytes           struct {
		FromClient  int `json:"received_from_client"`
		ToClient    int `json:"sent_to_client"`
		ToBackend   int `json:"sent_to_backend"`
		FromBackend int `json:"received_from_backend"`
	}
}

func (h *halfClose) replay(v vector) {
	var steps [][]string
	decode(h.t, v.Steps, &steps)
	var want halfCloseWant
	decode(h.t, v.Expected, &want)
	ended := 0
	for i, step := range steps {
		if ended == 0 && len(sessions(h.c, h.number)) > 0 {
			ended = i // after the step before
		}
		h.mu.Lock()
		h.step = i + 1
		h.mu.Unlock()
		h.do(step)
		h.settle(i+1, &want)
	}
	testnet.Eventually(h.t, 10*time.Second, "the end of the session", func() bool { return len(sessions(h.c, h.number)) > 0 })
	if ended == 0 {
		ended = len(steps)
	}
	h.compare(&want, ended, sessions(h.c, h.number)[0])
}

func (h *halfClose) do(step []string) {
	s := h.client
	if step[0][:7] == "backend" {
		s = h.backend
	}
	switch step[0] {
	case "client_send", "backend_send":
		_, _ = s.conn.Write([]byte(step[1])) // the other side may be gone
	case "client_fin", "backend_fin":
		_ = s.conn.(*net.TCPConn).CloseWrite()
	case "client_close", "backend_close":
		h.mu.Lock()
		s.closed = true
		h.mu.Unlock()
		_ = s.conn.Close()
	default:
		h.t.Fatalf("unknown step %v", step)
	}
}

// settle waits until what shall have happened after a step has, and for a
// moment in which more could happen.
func (h *halfClose) settle(step int, want *halfCloseWant) {
	h.t.Helper()
	due := func(s *side, at *int) bool { return s.closed || at == nil || *at > step || s.eof > 0 }
	testnet.Eventually(h.t, 10*time.Second, "the end of the sides that end", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return due(h.client, want.ClientEOF) && due(h.backend, want.BackendEOF)
	})
	if want.Ended <= step {
		testnet.Eventually(h.t, 10*time.Second, "the end of the session", func() bool { return len(sessions(h.c, h.number)) > 0 })
	}
	time.Sleep(50 * time.Millisecond) // between two events, as in the recording
}

func (h *halfClose) compare(want *halfCloseWant, ended int, l testnet.Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	check := func(what string, got, want any) {
		if got != want {
			h.t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("the client received", h.client.received, want.ClientReceived)
	check("the backend received", h.backend.received, want.BackendReceived)
	if want.ClientEOF != nil {
		check("the client saw the end after step", h.client.eof, *want.ClientEOF)
	}
	if want.BackendEOF != nil {
		check("the backend saw the end after step", h.backend.eof, *want.BackendEOF)
	}
	check("the session ended after step", ended, want.Ended)
	check("status", status(l), want.Status)
	check("bytes from the client", number(l, "bytes_received"), want.Bytes.FromClient)
	check("bytes to the client", number(l, "bytes_sent"), want.Bytes.ToClient)
	check("bytes to the backend", l.Fields["upstream_bytes_sent"], itoa(want.Bytes.ToBackend))
	check("bytes from the backend", l.Fields["upstream_bytes_received"], itoa(want.Bytes.FromBackend))
}
