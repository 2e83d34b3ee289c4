// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// script is a connection to a server that has said everything already.
type script struct {
	net.Conn
	in *bytes.Reader
}

func (s *script) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error)      { return len(p), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// answered runs an exchange over a connection on which the answer lies ready.
func answered(t *Transport, req *http.Request, answer []byte) (*http.Response, *exchange.Error, *conn) {
	c := newConn(&script{in: bytes.NewReader(answer)}, time.Now())
	t.cache.opened(c, &key{network: "tcp", address: "x", identity: t.plain})
	x := &trip{t: t, a: new(exchange.Attempt), req: req, buf: newBuffer()}
	x.a.Start = time.Now()
	if e := x.over(c, false, time.Now()); e != nil {
		return nil, e, c
	}
	return &x.resp, nil, c
}

// FuzzResponse asserts that whatever a server sends, the parser ends, and that
// where net/http accepts the same answer too, both have read the same.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.0 404 Not\nX: y\n\nbody until close",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello!",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	t := new(Transport)
	provisioned(f, t)
	f.Fuzz(func(tt *testing.T, answer []byte, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		req := &http.Request{Method: method, Header: http.Header{}}
		ours, e, c := answered(t, req, answer)
		if e != nil {
			if e.Kind != exchange.InvalidHeader && e.Kind != exchange.Failed {
				tt.Fatalf("error %v for %q", e, answer)
			}
			return
		}
		body, err := io.ReadAll(ours.Body)
		_ = ours.Body.Close()
		if ours.StatusCode < 200 || ours.StatusCode > 999 {
			tt.Errorf("status %d for %q", ours.StatusCode, answer)
		}
		if c.idle && (err != nil || c.r != c.w || ours.ProtoMinor == 0 || ours.Close) {
			tt.Errorf("kept the connection after %q", answer)
		}
		tt.Cleanup(func() { t.cache.evict([]watched{{c, c.gen}}) })
		if ours.ProtoMinor == 0 && len(ours.TransferEncoding) > 0 {
			// net/http overlooks Transfer-Encoding in HTTP/1.0 and hands the chunks
			// out as they are. We decode them, as nginx does (and never keep the
			// connection), so they are what the same is in HTTP/1.1.
			if bytes.Count(answer, []byte("HTTP/1.0")) > 1 {
				return
			}
			answer = bytes.Replace(answer, []byte("HTTP/1.0"), []byte("HTTP/1.1"), 1)
		}
		r := bufio.NewReader(bytes.NewReader(answer))
		theirs, terr := http.ReadResponse(r, req)
		for terr == nil && theirs.StatusCode < 200 {
			theirs, terr = http.ReadResponse(r, req)
		}
		if terr != nil {
			return // we are not stricter than nginx about control characters
		}
		tbody, tberr := io.ReadAll(theirs.Body)
		if (err == nil) != (tberr == nil) {
			return // one of us refuses the body: no two readings
		}
		if err == nil && !bytes.Equal(body, tbody) {
			tt.Errorf("body %q, net/http has %q, for %q", body, tbody, answer)
		}
		if ours.StatusCode != theirs.StatusCode || ours.ContentLength != theirs.ContentLength && !bodiless(method, ours.StatusCode) || !cmp.Equal(ours.TransferEncoding, theirs.TransferEncoding) {
			tt.Errorf("read %d %d %v, net/http %d %d %v, for %q", ours.StatusCode, ours.ContentLength, ours.TransferEncoding,
				theirs.StatusCode, theirs.ContentLength, theirs.TransferEncoding, answer)
		}
		if diff := cmp.Diff(trimmed(theirs.Header), trimmed(ours.Header)); diff != "" {
			tt.Errorf("header (-net/http +ours) of %q:\n%s", answer, diff)
		}
	})
}

// trimmed takes out what net/http removes in other ways than we do.
func trimmed(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Trailer")
	h.Del("Connection")
	if v := h["Content-Length"]; len(v) > 1 {
		h["Content-Length"] = v[:1]
	}
	for _, vs := range h {
		for i := range vs {
			vs[i] = strings.TrimSpace(vs[i])
		}
	}
	return h
}
