// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"net"
	"testing"
	"time"
)

// Eventually waits at most d until f is true and fails the test if it does not
// become so; what says what was waited for.
func Eventually(t testing.TB, d time.Duration, what string, f func() bool) {
	t.Helper()
	if !Poll(d, f) {
		t.Fatalf("not within %v: %s", d, what)
	}
}

// Poll calls f until it is true or d has passed, and reports whether it is.
func Poll(d time.Duration, f func() bool) bool {
	deadline := time.Now().Add(d)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if f() {
			return true
		}
		if time.Now().Add(pause).After(deadline) {
			return f()
		}
		time.Sleep(pause)
	}
}

// accepts reports whether somebody listens there.
func accepts(network, addr string) bool {
	c, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
