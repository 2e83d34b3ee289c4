// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// A client asks for a file that no buffers of sockets hold, and reads nothing.
// With the timeout of the server it would keep its response for an hour.
func TestALocationGivesUpOnAClientThatReadsNothingAfterItsSendTimeout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	writeFile(t, big, "")
	if err := os.Truncate(big, 1<<30); err != nil {
		t.Fatal(err)
	}
	front := testnet.Reserve(t).Addr()
	startAdapted(t, fmt.Sprintf(`http { log_format s '$uri'; access_log %[1]s/a.log s; send_timeout 1h;
	server { listen %[2]s; root %[1]s; location = /big { send_timeout 300ms; } } }`, dir, front), dir)
	c, err := net.Dial("tcp", front)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if text, _ := os.ReadFile(filepath.Join(dir, "a.log")); string(text) == "/big\n" {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("after 30s the request has not ended; the log is %q", text)
		}
	}
}

// A client says that it sends a body and stops in the middle. With the timeout of
// the server the request would wait for an hour.
func TestALocationGivesUpOnABodyThatDoesNotComeAfterItsTimeout(t *testing.T) {
	t.Parallel()
	backend := testnet.NewBackendFunc(t, script(0))
	dir := t.TempDir()
	log := filepath.Join(dir, "a.log")
	conf := fmt.Sprintf(`http { log_format s '$status $uri'; access_log %s s; client_body_timeout 1h;
	server { listen FRONT; listen OTHER; location / { client_body_timeout 300ms; proxy_pass http://%s; } location /408 { error_page 408 /x; return 408; } } }
`, log, backend.Addr())
	onBoth(t, conf, func(front, _ string) []string {
		before := lineCount(log)
		for _, text := range []string{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", "GET /408 HTTP/1.1\r\nHost: a\r\n\r\n"} {
			c, err := net.Dial("tcp", front)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
				t.Fatalf("the connection ends with %v, %q; want no response", err, got)
			}
		}
		lines := linesAfter(t, log, before, 2)
		slices.Sort(lines) // either may come first
		return lines
	})
}
