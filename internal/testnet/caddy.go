// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// startTimeout is generous: a race-enabled binary on a busy machine.
const startTimeout = 60 * time.Second

// Caddy is a running Caddy: the test binary itself, in a process of its own.
type Caddy struct {
	*Process
	admin string // the path of the admin API's socket
	ports *portSet
}

// StartCaddy runs Caddy with a configuration, a Caddyfile or JSON (see the
// package's text for the template), and returns when it serves. The admin API
// listens on a socket of its own as long as the configuration does not say
// otherwise.
func StartCaddy(t testing.TB, config string, data any) *Caddy {
	t.Helper()
	c, err := TryCaddy(t, config, data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TryCaddy is StartCaddy for a configuration that may not start. The error
// holds everything that Caddy wrote.
func TryCaddy(t testing.TB, config string, data any) (*Caddy, error) {
	t.Helper()
	return tryCaddy(t, config, data, func(string) {})
}

// tryCaddy shows each configuration that it is about to run to before.
func tryCaddy(t testing.TB, config string, data any, before func(text string)) (*Caddy, error) {
	t.Helper()
	ports := newPortSet()
	for try := 1; ; try++ {
		text, added := ports.expand(t, config, data)
		before(text)
		c, err := startCaddy(t, text)
		if err == nil {
			c.ports = ports
			return c, nil
		}
		if try == 5 || !portTaken(err.Error(), nil) {
			return nil, err
		}
		ports.forget(added)
	}
}

func startCaddy(t testing.TB, config string) (*Caddy, error) {
	t.Helper()
	// Not t.TempDir(): the path of a Unix socket has room for 100 bytes only.
	dir, err := os.MkdirTemp("", "cu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file, adapter := filepath.Join(dir, "Caddyfile"), "caddyfile"
	if json.Valid([]byte(config)) {
		file, adapter = filepath.Join(dir, "caddy.json"), ""
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	token := []byte(rand.Text())
	c := &Caddy{admin: filepath.Join(dir, "admin.sock")}
	args := []string{"run", "--config", file, "--pingback", ln.Addr().String()}
	if adapter != "" {
		args = append(args, "--adapter", adapter)
	}
	cmd := exec.Command(self(t), args...)
	cmd.Dir = dir
	cmd.Env = childEnviron(dir, []string{"CADDY_ADMIN=unix/" + c.admin})
	cmd.Stdin = bytes.NewReader(token)
	c.Process, err = start(t, spec{name: "caddy", cmd: cmd})
	if err != nil {
		return nil, err
	}
	if err := c.waitServing(ln, token); err != nil {
		c.quiet = true
		c.Kill()
		return nil, err
	}
	return c, nil
}

// waitServing waits for the sign that `caddy run --pingback` gives once the
// configuration runs.
func (c *Caddy) waitServing(ln net.Listener, token []byte) error {
	confirmed := make(chan struct{})
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			got, _ := io.ReadAll(io.LimitReader(conn, int64(len(token))))
			conn.Close()
			if bytes.Equal(got, token) {
				close(confirmed)
				return
			}
		}
	}()
	select {
	case <-confirmed:
		return nil
	case <-c.Done():
		return fmt.Errorf("caddy did not start: %v\n%s", c.err, c.Text())
	case <-time.After(startTimeout):
		return fmt.Errorf("caddy did not start within %v\n%s", startTimeout, c.Text())
	}
}

// Addr is 127.0.0.1 and the port that a configuration called name.
func (c *Caddy) Addr(name string) string {
	c.t.Helper()
	addr, err := c.ports.addr(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return addr
}

// URL is http:// and the address of the port that a configuration called name.
func (c *Caddy) URL(name string) string {
	c.t.Helper()
	return "http://" + c.Addr(name)
}

// StopGracefully asks Caddy to end as a service manager does and fails the test
// unless it does so within d and with exit status 0.
func (c *Caddy) StopGracefully(d time.Duration) {
	c.t.Helper()
	if c.alive() {
		c.Signal(syscall.SIGTERM)
	}
	if err := c.Wait(d); err != nil {
		c.t.Errorf("caddy ended with %v, want exit status 0", err)
	}
}
