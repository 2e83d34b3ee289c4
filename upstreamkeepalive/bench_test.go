// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

const benchServer = "UPSTREAMKEEPALIVE_BENCH_SERVER"

// serveBenchmarks is the server's process: it answers as cheaply as possible.
func serveBenchmarks() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() { // ends with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	answer := []byte("HTTP/1.1 200 OK\r\nServer: nginx/1.31.5\r\nDate: Sun, 29 Nov 2026 22:00:00 GMT\r\n" +
		"Content-Type: text/plain\r\nContent-Length: 100\r\nConnection: keep-alive\r\n" +
		"Last-Modified: Sun, 29 Nov 2026 20:00:00 GMT\r\nETag: \"6745a0c0-64\"\r\nAccept-Ranges: bytes\r\n\r\n" +
		strings.Repeat("x", 100))
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			r := bufio.NewReader(c)
			for {
				line, err := r.ReadSlice('\n')
				if err != nil {
					c.Close()
					return
				}
				if len(line) == 2 {
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}
		}()
	}
}

func startBenchServer(b *testing.B) net.Addr {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), benchServer+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	addr, err := net.ResolveTCPAddr("tcp", strings.TrimSpace(line))
	if err != nil {
		b.Fatal(err)
	}
	return addr
}

// proxied is a request as Caddy's handler passes it on.
func proxied(ctx context.Context, tb testing.TB, to net.Addr) *http.Request {
	req := requestCtx(ctx, tb, "GET", to, nil)
	req.RequestURI = ""
	req.URL.Host = to.String()
	req.Host = "example.com"
	req.Header = http.Header{
		"User-Agent":        {"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"},
		"Accept":            {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		"Accept-Language":   {"en-US,en;q=0.5"},
		"Accept-Encoding":   {"gzip, deflate, br, zstd"},
		"X-Forwarded-For":   {"192.0.2.1"},
		"X-Forwarded-Host":  {"example.com"},
		"X-Forwarded-Proto": {"http"},
		"Via":               {"1.1 Caddy"},
	}
	return req
}

// client sends requests over one transport, from one goroutine or several.
type client struct {
	rt      http.RoundTripper
	workers []worker
}

type worker struct {
	req *http.Request
	buf []byte
}

func newClient(b *testing.B, rt http.RoundTripper, to net.Addr, parallel int) *client {
	ctx := context.WithValue(b.Context(), caddy.ReplacerCtxKey, caddy.NewReplacer())
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
	c := &client{rt: rt, workers: make([]worker, parallel)}
	for i := range c.workers {
		ctx, cancel := context.WithCancel(ctx)
		b.Cleanup(cancel)
		c.workers[i] = worker{proxied(ctx, b, to), make([]byte, 32<<10)}
	}
	return c
}

// run sends n requests from each worker, and returns the processor time that
// this took.
func (c *client) run(b *testing.B, n int) time.Duration {
	before := cpu()
	if len(c.workers) == 1 {
		c.send(b, &c.workers[0], n)
		return cpu() - before
	}
	var wg sync.WaitGroup
	for i := range c.workers {
		wg.Go(func() { c.send(b, &c.workers[i], n) })
	}
	wg.Wait()
	return cpu() - before
}

func (c *client) send(b *testing.B, w *worker, n int) {
	for range n {
		res, err := c.rt.RoundTrip(w.req)
		if err != nil {
			b.Error(err)
			return
		}
		for err == nil {
			_, err = res.Body.Read(w.buf)
		}
		if err != io.EOF || res.StatusCode != 200 {
			b.Errorf("status %d, body %v", res.StatusCode, err)
		}
		res.Body.Close()
	}
}

// BenchmarkRoundTrip compares a whole round trip with that of Caddy's own http
// transport: what this process spends, the server being another one. It runs
// both in short turns, so that what else the machine does falls on both; an op
// is a turn of each.
func BenchmarkRoundTrip(b *testing.B) {
	to := startBenchServer(b)
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	n := 256
	theirs := &reverseproxy.HTTPTransport{KeepAlive: &reverseproxy.KeepAlive{MaxIdleConnsPerHost: n}}
	if err := theirs.Provision(ctx); err != nil {
		b.Fatal(err)
	}
	defer theirs.Cleanup()
	ours := provisioned(b, &Transport{Keepalive: &n})
	for _, parallel := range []int{1, 64} {
		b.Run(fmt.Sprintf("parallel=%d", parallel), func(b *testing.B) {
			const requests = 640
			ours, theirs := newClient(b, ours, to, parallel), newClient(b, theirs, to, parallel)
			var used, theirsUsed time.Duration
			var turns int
			for b.Loop() {
				used += ours.run(b, requests/parallel)
				theirsUsed += theirs.run(b, requests/parallel)
				turns++
			}
			b.ReportMetric(float64(used)/float64(turns*requests), "ours-cpu-ns/request")
			b.ReportMetric(float64(theirsUsed)/float64(turns*requests), "caddy-cpu-ns/request")
			b.ReportMetric(float64(used)/float64(theirsUsed), "ours/caddy")
		})
	}
}
