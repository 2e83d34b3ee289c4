// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testnet

import (
	"errors"
	"net"
	"os/exec"
	"testing"
)

// Host is another machine: a network namespace, which only Linux has.
type Host struct {
	IP    string
	Outer string
}

var errNoHost = errors.New("network namespaces take Linux")

// NewHost skips the test, and fails it when CI=true.
func NewHost(t testing.TB) *Host {
	t.Helper()
	Missing(t, errNoHost.Error())
	return nil
}

// Drop does nothing here.
func (*Host) Drop(bool) {}

// Listen is an error here.
func (*Host) Listen(_, _ string) (net.Listener, error) { return nil, errNoHost }

// ListenPacket is an error here.
func (*Host) ListenPacket(_, _ string) (net.PacketConn, error) { return nil, errNoHost }

// Start is an error here.
func (*Host) Start(_ string, _ *exec.Cmd) *Process { panic(errNoHost) }
