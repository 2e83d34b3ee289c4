// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestAHostAnswersUntilItIsABlackHole(t *testing.T) {
	h := NewHost(t)
	b := NewBackendOn(t, func() (net.Listener, error) { return h.Listen("tcp", ":8080") },
		func(Request) Answer { return Answer{Body: "far away"} })
	if !strings.HasPrefix(b.Addr(), "10.203.") {
		t.Fatalf("address %s, want one in 10.203.0.0/16", b.Addr())
	}
	open := dial(t, b.Addr())
	if res, err := open.Do("GET", "/", nil, nil); err != nil || res.Text() != "far away" {
		t.Fatalf("response = %+v, %v, want far away", res, err)
	}

	h.Drop(true)
	if _, err := net.DialTimeout("tcp", b.Addr(), 300*time.Millisecond); !isTimeoutErr(err) {
		t.Errorf("Dial = %v, want silence until the timeout", err)
	}
	open.Timeout = 300 * time.Millisecond
	if _, err := open.Do("GET", "/", nil, nil); !isTimeoutErr(err) {
		t.Errorf("on an open connection %v, want silence until the timeout", err)
	}

	h.Drop(false)
	if res, err := dial(t, b.Addr()).Do("GET", "/", nil, nil); err != nil || res.Text() != "far away" {
		t.Errorf("response = %+v, %v, want far away again", res, err)
	}
	if _, err := net.DialTimeout("tcp", net.JoinHostPort(h.IP, "81"), time.Second); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Dial of another port = %v, want refused", err)
	}
}

func TestAHostRunsAProgram(t *testing.T) {
	h := NewHost(t)
	p := h.Start("redis-server", exec.Command(Need(t, "redis-server"),
		"--bind", h.IP, "--port", "6379", "--save", "", "--protected-mode", "no", "--dir", t.TempDir()))
	addr := net.JoinHostPort(h.IP, "6379")
	Eventually(t, 10*time.Second, "redis on the host", func() bool { return accepts("tcp", addr) })
	if got := askLine(t, addr, "PING\r\n"); got != "+PONG\r\n" {
		t.Errorf("answer = %q, want +PONG", got)
	}
	_ = p.Stop(10 * time.Second)
}
