// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestNginxServesHTTPAndStream(t *testing.T) {
	l := NewLines(t, "")
	n := StartNginx(t, `
		worker_processes 1;
		http {
			access_log off;
			server {
				listen {{addr "http"}};
				return 200 "from nginx";
			}
		}
		stream {
			server {
				listen {{addr "stream"}};
				proxy_pass {{.}};
			}
		}`, l.Addr())
	if res := Get(t, "http://"+n.Addr("http")+"/"); res.Text() != "from nginx" {
		t.Errorf("response = %+v, want from nginx", res)
	}
	if got := askLine(t, n.Addr("stream"), "hello\n"); !strings.HasSuffix(got, " HELLO\n") {
		t.Errorf("answer through stream = %q, want HELLO", got)
	}
	if err := n.Stop(10 * time.Second); err != nil {
		t.Errorf("Stop() = %v, want exit status 0", err)
	}
}

func TestHAProxyServes(t *testing.T) {
	b := NewBackend(t, Answer{Body: "behind haproxy"})
	h := StartHAProxy(t, `
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
listen front
    bind {{addr "front"}}
    server a {{.}}
`, b.Addr())
	if res := Get(t, "http://"+h.Addr("front")+"/"); res.Text() != "behind haproxy" {
		t.Errorf("response = %+v, want behind haproxy", res)
	}
}

func TestRedisAnswers(t *testing.T) {
	r := StartRedis(t)
	if got := askLine(t, r.Addr("redis"), "PING\r\n"); got != "+PONG\r\n" {
		t.Errorf("answer = %q, want +PONG", got)
	}
}

func TestPostgresAnswers(t *testing.T) {
	p := StartPostgres(t)
	host, port, _ := net.SplitHostPort(p.Addr("postgres"))
	out, err := exec.Command(Need(t, "psql"), "-X", "-h", host, "-p", port, "-U", "postgres", "-Atc", "select 6*7").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "42" {
		t.Errorf("select 6*7 = %q, %v, want 42", out, err)
	}
	if err := p.Stop(20 * time.Second); err != nil {
		t.Errorf("Stop() = %v, want exit status 0", err)
	}
}

func TestAMissingServerIsASkipAndInCIAFailure(t *testing.T) {
	for ci, want := range map[string]string{"": "skip", "true": "fatal"} {
		t.Setenv("CI", ci)
		got := &verdict{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Need(got, "no-such-server")
		}()
		<-done
		if got.how != want {
			t.Errorf("with CI=%q a missing server is %q, want %q", ci, got.how, want)
		}
	}
}

// askLine sends a line and returns the line that comes back.
func askLine(t *testing.T, addr, line string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, line); err != nil {
		t.Fatal(err)
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(fmt.Errorf("after %q: %w", got, err))
	}
	return got
}
