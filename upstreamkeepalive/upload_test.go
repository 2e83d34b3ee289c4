// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

func TestExpectIsNotForwarded(t *testing.T) {
	heads := make(chan http.Header, 1)
	s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		heads <- req.Header
		b, _ := io.ReadAll(req.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"+string(b))
	})
	req := request(t, "PUT", s.Addr(), strings.NewReader("hello"))
	req.Header.Set("Expect", "100-continue")
	if got, _ := exchangeOnce(t, provisioned(t, new(Transport)), req); got.Body != "hello" {
		t.Errorf("got %+v", got)
	}
	if h := <-heads; h.Get("Expect") != "" {
		t.Errorf("the server got %v", h)
	}
}

func TestRequestTrailersAreSentAsTheyAreAtTheEnd(t *testing.T) {
	trailers := make(chan http.Header, 1)
	s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		trailers <- req.Trailer
		_, _ = io.WriteString(c, okEmpty)
	})
	tr := provisioned(t, new(Transport))
	req := request(t, "PUT", s.Addr(), nil)
	req.Trailer = http.Header{"X-Sum": nil}
	req.ContentLength = -1
	req.Body = io.NopCloser(io.MultiReader(strings.NewReader("hello"), atEOF(func() { req.Trailer.Set("X-Sum", "6") })))
	if got, _ := exchangeOnce(t, tr, req); got.Status != 200 {
		t.Errorf("got %+v", got)
	}
	if h := <-trailers; h.Get("X-Sum") != "6" {
		t.Errorf("the server got trailer %v", h)
	}

	req = request(t, "PUT", s.Addr(), nil)
	req.Trailer, req.ContentLength = http.Header{"X-Sum": {"a\r\nX: y"}}, -1
	req.Body = io.NopCloser(strings.NewReader("hello"))
	if got, _ := exchangeOnce(t, tr, req); got.Kind != "refused" {
		t.Errorf("a line break in a trailer: got %+v, want refused", got)
	}
}

type atEOF func()

func (f atEOF) Read([]byte) (int, error) { f(); return 0, io.EOF }

func TestAShortOrBrokenBodyIsTheClients(t *testing.T) {
	broken := errors.New("client broke")
	s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		if req, err := http.ReadRequest(r); err == nil {
			if _, err := io.Copy(io.Discard, req.Body); err == nil {
				t.Error("the server saw a complete body")
			}
		}
	})
	tr := provisioned(t, new(Transport))
	for _, tt := range []struct {
		name   string
		body   io.Reader
		length int64
		want   error
	}{
		{"small and short", strings.NewReader("hello"), 10, io.ErrUnexpectedEOF},
		{"small and empty", strings.NewReader(""), 10, io.ErrUnexpectedEOF},
		{"small and broken", io.MultiReader(strings.NewReader("hello"), failing{broken}), 10, broken},
		{"large and short", strings.NewReader(strings.Repeat("x", 50_000)), 100_000, io.ErrUnexpectedEOF},
		{"large and broken", io.MultiReader(strings.NewReader(strings.Repeat("x", 50_000)), failing{broken}), 100_000, broken},
		{"chunked and broken", io.MultiReader(strings.NewReader("hello"), failing{broken}), -1, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := request(t, "PUT", s.Addr(), nil)
			req.Body, req.ContentLength = io.NopCloser(tt.body), tt.length
			_, err := tr.Exchange(req, new(exchange.Attempt))
			var e *exchange.Error
			if !errors.As(err, &e) || e.Kind != exchange.ClientBody || e.Err != tt.want {
				t.Errorf("Exchange() = %+v, want the client's own %v", err, tt.want)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestABodyLongerThanItsLengthIsCut(t *testing.T) {
	s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			b, _ := io.ReadAll(req.Body)
			if strings.Trim(string(b), "x") != "" || r.Buffered() != 0 {
				t.Errorf("the server got %d bytes and %d more", len(b), r.Buffered())
			}
			_, _ = io.WriteString(c, okEmpty)
		}
	})
	tr := provisioned(t, new(Transport))
	for _, n := range []int{5, 100_000} {
		req := request(t, "PUT", s.Addr(), nil)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", n)+"GET / HTTP/1.1")), int64(n)
		if got, _ := exchangeOnce(t, tr, req); got.Status != 200 {
			t.Errorf("got %+v", got)
		}
	}
}

func TestWithoutAServerInTheContext(t *testing.T) {
	req, _ := http.NewRequestWithContext(context.Background(), "GET", "http://example.com/", nil)
	_, err := provisioned(t, new(Transport)).Exchange(req, new(exchange.Attempt))
	var e *exchange.Error
	if !errors.As(err, &e) || e.Kind != exchange.Local {
		t.Errorf("Exchange() = %v, want local", err)
	}
}
