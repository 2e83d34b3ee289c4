// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// childEnv tells the test binary to be Caddy.
const childEnv = "TESTNET_RUN_CADDY"

// resolverEnv names the name server that is the system's for a child.
const resolverEnv = "TESTNET_RESOLVER"

// BeTheSystems makes d the system's name server for each Caddy that the test
// starts from now on.
func (d *DNS) BeTheSystems(t *testing.T) {
	t.Helper()
	t.Setenv(resolverEnv, d.Addr())
}

// Main is the whole TestMain of a package that starts Caddy.
func Main(m *testing.M) {
	RunIfChild()
	os.Exit(m.Run())
}

// RunIfChild becomes Caddy, and does not return, in a process that StartCaddy
// or Command started. A TestMain that does more than Main calls it first.
func RunIfChild() {
	if os.Getenv(childEnv) == "" {
		return
	}
	os.Unsetenv(childEnv)
	if addr := os.Getenv(resolverEnv); addr != "" {
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	}
	caddycmd.Main()
	os.Exit(0)
}

// Command runs the test binary as Caddy with args (for example "adapt",
// "--config", path), in a home of its own, and waits for its end. The error is
// nil if the exit status was 0, and an *exec.ExitError otherwise.
func Command(t testing.TB, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self(t), args...)
	cmd.Env = childEnviron(t.TempDir(), nil)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatalf("caddy %v: %v", args, err)
		}
		if ctx.Err() != nil {
			t.Fatalf("caddy %v: no end within a minute\n%s", args, e.String())
		}
	}
	return o.String(), e.String(), err
}

// self is the path of the test binary.
func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatalf("finding the test binary: %v", err)
	}
	return path
}

// childEnviron is the environment of a Caddy whose files live under home.
func childEnviron(home string, more []string) []string {
	env := append(os.Environ(),
		childEnv+"=1",
		"HOME="+home,
		"XDG_DATA_HOME="+home,
		"XDG_CONFIG_HOME="+home,
		// The race detector would wait a second at the end of each child.
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0",
	)
	return append(env, more...)
}
