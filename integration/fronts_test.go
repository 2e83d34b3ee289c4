// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// overHTTP2 is serve with a front that speaks HTTP/2 without TLS.
func overHTTP2(t *testing.T, global, site string) *proxy {
	t.Helper()
	return serve(t, global+"\tservers {\n\t\tprotocols h1 h2c\n\t}\n", site)
}

func TestHTTP2ClientsUploadToHTTP1BackendsAndFailOver(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Echo: true})
	p := overHTTP2(t, group("app", testnet.RefusedAddr(t)+" max_fails=0", b.Addr()), `
	proxy_pass /stream app {
		request_buffering off
	}
	proxy_pass app`)
	client := h2cClient(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	for _, target := range []string{"/", "/stream", "/", "/stream"} {
		// Of unknown length, and with a trailer.
		req, err := http.NewRequestWithContext(t.Context(), "POST", p.URL("front")+target, io.NopCloser(bytes.NewReader(content)))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"X-Checksum": {"42"}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !bytes.Equal(got, content) {
			t.Errorf("%s: status %d, %d bytes, %v; want the echo of %d", target, res.StatusCode, len(got), err, len(content))
		}
		all := b.Requests()
		if last := all[len(all)-1]; len(last.Trailer) != 1 || last.Trailer[0].Value != "42" {
			t.Errorf("%s: the backend got the trailers %v", target, last.Trailer)
		}
	}
	p.waitConns(0)
}

func TestAnHTTP2ClientThatCancelsGivesTheSlotBack(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Silent)
	p := overHTTP2(t, group("app", b.Addr()), `
	proxy_pass app {
		request_buffering off
	}`)
	client := h2cClient(t)
	for _, method := range []string{"GET", "POST"} {
		ctx, cancel := context.WithCancel(t.Context())
		var body io.Reader
		if method == "POST" {
			r, w := io.Pipe()
			body = r
			go func() { _, _ = io.WriteString(w, "first part") }()
		}
		req, err := http.NewRequestWithContext(ctx, method, p.URL("front")+"/", body)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			res, err := client.Do(req)
			if err == nil {
				res.Body.Close()
			}
			failed <- err
		}()
		p.waitConns(1)
		cancel()
		if err := <-failed; err == nil {
			t.Errorf("%s: an answer from a silent backend", method)
		}
		p.waitConns(0)
	}
	if f := p.servers("app")[0].State.Failures; f != 0 {
		t.Errorf("%d failures, want none", f)
	}
}

func TestEventsReachTheClientOneByOne(t *testing.T) {
	t.Parallel()
	b := endless(t) // sends its first bytes and then nothing
	p := serve(t, group("app", b.Addr()), `
	proxy_pass app {
		flush_interval -1
	}`)
	c := p.dial()
	if err := c.Send("GET /stall HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.HasSuffix(got.String(), "begin") {
		n, err := c.Reader().Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("%q, %v: want the first bytes of a body that goes on", got.String(), err)
		}
	}
}

func TestAnHTTP10ClientGetsAWholeAnswer(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Header: []string{"Transfer-Encoding: chunked"}, Body: "5\r\nhello\r\n0\r\n\r\n"})
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	c := p.dial()
	if err := c.Send("GET / HTTP/1.0\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := c.Receive("GET")
	if err != nil || res.Text() != "hello" || res.Get("Transfer-Encoding") != "" {
		t.Errorf("%q, %v, Transfer-Encoding %q; want hello, framed by close", res.Text(), err, res.Get("Transfer-Encoding"))
	}
	if line := b.Requests()[0].Line; line != "GET / HTTP/1.1" {
		t.Errorf("the backend got %q, want HTTP/1.1", line)
	}
}

func TestManyUploadsLeaveNoTemporaryFileOpen(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{Body: "ok", Early: true})
	// Nothing is kept for reuse, so that every descriptor counts.
	p := serve(t, group("app", testnet.RefusedAddr(t)+" max_fails=0", b.Addr(), "keepalive off"), "\tproxy_pass app")
	content := make([]byte, 256<<10)
	p.post("/", content)
	p.waitConns(0)
	base := p.Usage()
	for i := range 20 {
		c := p.dial()
		if i%2 == 0 {
			if res, err := c.Do("POST", "/", nil, content); err != nil || res.Status != 200 {
				t.Errorf("upload %d: status %d, %v", i, res.Status, err)
			}
		} else {
			_ = c.Send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(content), content[:len(content)/2]))
		}
		c.Close()
	}
	p.waitConns(0)
	p.AssertReturnsTo(base, 30*time.Second)
}
