// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Admin sends a request to the admin API and returns the status and the body.
// header is pairs of name and value. Every request has its own connection.
func (c *Caddy) Admin(method, path string, body []byte, header ...string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Close = true
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.admin)
		},
	}}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// AdminJSON reads path from the admin API into v and fails the test if the
// answer is not 200 and JSON.
func (c *Caddy) AdminJSON(path string, v any) {
	c.t.Helper()
	status, body, err := c.Admin(http.MethodGet, path, nil)
	if err != nil || status != http.StatusOK {
		c.t.Fatalf("GET %s: status %d, error %v\n%s", path, status, err, body)
	}
	if err := json.Unmarshal(body, v); err != nil {
		c.t.Fatalf("GET %s: %v\n%s", path, err, body)
	}
}

// Reload gives Caddy another configuration, through the admin API, and returns
// when it is in force, or given up, and only one of the two listens. Ports that
// were named before stay the same. The error is the one that Caddy answered.
//
// On Linux both configurations listen for a while, and the kernel divides the
// connections among them. Those that the one which ends has not accepted, or has
// not read a request from, are reset. Caddy answers before that is over: it only
// waits until the goroutine that closes the listeners has been started.
func (c *Caddy) Reload(config string, data any) error {
	c.t.Helper()
	for try := 1; ; try++ {
		text, added := c.ports.expand(c.t, config, data)
		err := c.load(text)
		if err == nil || try == 5 || len(added) == 0 || !portTaken(err.Error(), err) {
			c.waitHandedOver()
			return err
		}
		c.ports.forget(added)
	}
}

func (c *Caddy) waitHandedOver() {
	c.t.Helper()
	var ports []int
	for _, r := range c.ports.ports {
		ports = append(ports, r.Port)
	}
	Eventually(c.t, 30*time.Second, "one listener at each address", func() bool {
		once, err := handedOver(ports)
		if err != nil {
			c.t.Fatal(err)
		}
		return once
	})
}

func (c *Caddy) load(text string) error {
	kind := "text/caddyfile"
	if json.Valid([]byte(text)) {
		kind = "application/json"
	}
	status, body, err := c.Admin(http.MethodPost, "/load", []byte(text),
		"Content-Type", kind, "Cache-Control", "must-revalidate")
	if err != nil {
		return fmt.Errorf("POST /load: %w", err)
	}
	if status == http.StatusOK {
		return nil
	}
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Error == "" {
		answer.Error = strings.TrimSpace(string(body))
	}
	return fmt.Errorf("POST /load: status %d: %s", status, answer.Error)
}

// MustReload is Reload for a configuration that has to be accepted.
func (c *Caddy) MustReload(config string, data any) {
	c.t.Helper()
	if err := c.Reload(config, data); err != nil {
		c.t.Fatal(err)
	}
}

// UseAdmin makes the admin API be asked at another socket, which a configuration
// has named.
func (c *Caddy) UseAdmin(path string) { c.admin = path }

// Run runs `caddy` with arguments, a command of the command line, to its end,
// beside c and with c's admin API. It returns what was printed.
func (c *Caddy) Run(args ...string) (stdout, stderr string, err error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, self(c.t), args...)
	cmd.Env = childEnviron(filepath.Dir(c.admin), []string{"CADDY_ADMIN=unix/" + c.admin})
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}
