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
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// exchanged is what came of one exchange.
type exchanged struct {
	Status int
	Body   string
	Broken bool // the body ended with an error
	Kept   bool // the connection
	Kind   string
}

// exchangeOnce sends one request and reads the response to its end.
func exchangeOnce(t *testing.T, tr *Transport, req *http.Request) (exchanged, *http.Response) {
	t.Helper()
	e := newEnder()
	a := &exchange.Attempt{Ender: e}
	res, err := tr.Exchange(req, a)
	if err != nil {
		var ee *exchange.Error
		if !errors.As(err, &ee) {
			t.Fatalf("Exchange() = %v, not an *exchange.Error", err)
		}
		if e.count() != 0 {
			t.Error("Ended was called although Exchange failed")
		}
		return exchanged{Kind: ee.Kind.String()}, nil
	}
	b, err := io.ReadAll(res.Body)
	if err != nil && err != io.ErrUnexpectedEOF {
		t.Errorf("body ended with %v", err)
	}
	res.Body.Close()
	if e.count() != 1 {
		t.Errorf("Ended %d times, want 1", e.count())
	}
	if (e.err != nil) != (err != nil) {
		t.Errorf("Ended(%v) after a body that ended with %v", e.err, err)
	}
	if a.ConnectTime() <= 0 || a.HeaderTime() < a.ConnectTime() || a.ResponseTime() < a.HeaderTime() {
		t.Errorf("times %v %v %v are not in order", a.ConnectTime(), a.HeaderTime(), a.ResponseTime())
	}
	return exchanged{Status: res.StatusCode, Body: string(b), Broken: err != nil, Kept: idleConns(tr) == 1}, res
}

func idleConns(tr *Transport) (n int) {
	for _, s := range tr.ConnStats() {
		n += s.Idle
	}
	return n
}

func TestResponseFraming(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	big := strings.Repeat("x", 200_000)
	tests := []struct {
		name   string
		method string // GET if empty
		answer string // the server closes afterwards
		want   exchanged
	}{
		{"content length", "", ok + "Content-Length: 5\r\n\r\nhello", exchanged{200, "hello", false, true, ""}},
		{"equal content lengths", "", ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", exchanged{200, "hello", false, true, ""}},
		{"no content", "", ok + "Content-Length: 0\r\n\r\n", exchanged{200, "", false, true, ""}},
		{"large", "", ok + "Content-Length: 200000\r\n\r\n" + big, exchanged{200, big, false, true, ""}},
		{"bytes beyond the length", "", ok + "Content-Length: 5\r\n\r\nhello!", exchanged{200, "hello", false, false, ""}},
		{"truncated", "", ok + "Content-Length: 6\r\n\r\nhello", exchanged{200, "hello", true, false, ""}},
		{"until close", "", ok + "\r\nhello", exchanged{200, "hello", false, false, ""}},
		{"chunked", "", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n", exchanged{200, "hello world", false, true, ""}},
		{"chunked, bare line feeds", "", ok + "Transfer-Encoding: Chunked\n\n5\nhello\n0\n\n", exchanged{200, "hello", false, true, ""}},
		{"chunked, large", "", ok + "Transfer-Encoding: chunked\r\n\r\n30d40\r\n" + big + "\r\n00\r\n\r\n", exchanged{200, big, false, true, ""}},
		{"chunked, truncated in a chunk", "", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel", exchanged{200, "hel", true, false, ""}},
		{"chunked, truncated after a chunk", "", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello", exchanged{200, "hello", true, false, ""}},
		{"chunked, no last chunk", "", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", exchanged{200, "hello", true, false, ""}},
		{"chunked, no end of the trailer", "", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", exchanged{200, "hello", true, false, ""}},
		{"chunked, bytes beyond", "", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK", exchanged{200, "", false, false, ""}},
		{"HTTP/1.0", "", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", exchanged{200, "hello", false, false, ""}},
		{"connection close", "", ok + "Connection: x, Close\r\nContent-Length: 5\r\n\r\nhello", exchanged{200, "hello", false, false, ""}},
		{"HEAD", "HEAD", ok + "Content-Length: 5\r\n\r\n", exchanged{200, "", false, true, ""}},
		{"HEAD, chunked", "HEAD", ok + "Transfer-Encoding: chunked\r\n\r\n", exchanged{200, "", false, true, ""}},
		{"HEAD, no length", "HEAD", ok + "\r\n", exchanged{200, "", false, true, ""}},
		{"HEAD, with a body", "HEAD", ok + "Content-Length: 5\r\n\r\nhello", exchanged{200, "", false, false, ""}},
		{"204", "", "HTTP/1.1 204 No Content\r\n\r\n", exchanged{204, "", false, true, ""}},
		{"304 with a length", "", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", exchanged{304, "", false, true, ""}},
		{"no reason", "", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", exchanged{200, "", false, true, ""}},
		{"status 999", "", "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", exchanged{999, "", false, true, ""}},
		{"100 first", "", "HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", exchanged{200, "", false, true, ""}},
		{"32 interim responses", "", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 32) + ok + "Content-Length: 0\r\n\r\n", exchanged{200, "", false, true, ""}},
		{"header of 60 KiB", "", ok + "X: " + big[:60<<10] + "\r\nContent-Length: 0\r\n\r\n", exchanged{200, "", false, true, ""}},

		{"33 interim responses", "", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 33) + ok + "\r\n", exchanged{Kind: "invalid_header"}},
		{"header of 66 KiB", "", ok + "X: " + big[:66<<10] + "\r\nContent-Length: 0\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"header without end", "", ok + "X: " + big, exchanged{Kind: "invalid_header"}},
		{"switch nobody asked for", "", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"status 99", "", "HTTP/1.1 99 Low\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"status 099", "", "HTTP/1.1 099 Low\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"status 1000", "", "HTTP/1.1 1000 High\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"status +20", "", "HTTP/1.1 +20 OK\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"HTTP/2.0", "", "HTTP/2.0 200 OK\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"HTTP/0.9", "", "hello world\n\n", exchanged{Kind: "invalid_header"}},
		{"line before the status line", "", "\r\nHTTP/1.1 200 OK\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"different lengths", "", ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", exchanged{Kind: "invalid_header"}},
		{"length and chunked", "", ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"negative length", "", ok + "Content-Length: -1\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"signed length", "", ok + "Content-Length: +5\r\n\r\nhello", exchanged{Kind: "invalid_header"}},
		{"list of lengths", "", ok + "Content-Length: 5, 5\r\n\r\nhello", exchanged{Kind: "invalid_header"}},
		{"length beyond 63 bits", "", ok + "Content-Length: 9223372036854775808\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"unknown coding", "", ok + "Transfer-Encoding: gzip\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"two codings", "", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"chunked twice", "", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"NUL in a value", "", ok + "X: a\x00b\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"CR in a value", "", ok + "X: a\rb\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"CR in the reason", "", "HTTP/1.1 200 O\rK\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"space before the colon", "", ok + "X : a\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"folded line", "", ok + "X: a\r\n b\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"no colon", "", ok + "X\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"no name", "", ok + ": x\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"control character in a name", "", ok + "X-Bad\x01Name: 1\r\n\r\n", exchanged{Kind: "invalid_header"}},
		{"closed at once", "", "", exchanged{Kind: "error"}},
		{"closed in the header", "", ok + "X: ", exchanged{Kind: "error"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pieces := range []int{1 << 30, 7} {
				if pieces == 7 && len(tt.answer) > 10_000 {
					continue
				}
				hold := make(chan struct{})
				s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					for rest := tt.answer; rest != ""; {
						n := min(pieces, len(rest))
						if _, err := io.WriteString(c, rest[:n]); err != nil {
							break
						}
						rest = rest[n:]
					}
					if tt.want.Kept {
						<-hold
					}
				})
				tr := provisioned(t, new(Transport))
				method := tt.method
				if method == "" {
					method = "GET"
				}
				got, _ := exchangeOnce(t, tr, request(t, method, s.Addr(), nil))
				close(hold)
				if diff := cmp.Diff(tt.want, got); diff != "" && (pieces != 7 || tt.want.Kept) {
					t.Errorf("in pieces of %d (-want +got):\n%.2000s", pieces, diff)
				}
			}
		})
	}
}

func TestBrokenChunksAreErrors(t *testing.T) {
	for name, body := range map[string]string{
		"no size":               "\r\nhello\r\n0\r\n\r\n",
		"not hexadecimal":       "5g\r\nhello\r\n0\r\n\r\n",
		"signed":                "+5\r\nhello\r\n0\r\n\r\n",
		"0x":                    "0x5\r\nhello\r\n0\r\n\r\n",
		"16 digits":             "0000000000000005\r\nhello\r\n0\r\n\r\n",
		"wraps around":          "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
		"longer than said":      "4\r\nhello\r\n0\r\n\r\n",
		"CR in the extension":   "5;a=\rb\r\nhello\r\n0\r\n\r\n",
		"space within the size": "5 5\r\nhello\r\n0\r\n\r\n",
		"long extension":        "5;" + strings.Repeat("a", 2000) + "\r\nhello\r\n0\r\n\r\n",
		"many extensions":       strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\nh\r\n", 100) + "0\r\n\r\n",
		"broken trailer":        "5\r\nhello\r\n0\r\nX Y: 1\r\n\r\n",
		"large trailer":         "5\r\nhello\r\n0\r\nX: " + strings.Repeat("a", 200<<10) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
					_, _ = io.Copy(io.Discard, c)
				}
			})
			tr := provisioned(t, new(Transport))
			res, err := tr.Exchange(request(t, "GET", s.Addr(), nil), new(exchange.Attempt))
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			var m malformed
			if !errors.As(err, &m) {
				t.Errorf("body ended with %v, want a malformed response", err)
			}
			if idleConns(tr) != 0 {
				t.Error("the connection was kept")
			}
		})
	}
}

func TestResponseHeaderIsAsNetHTTPWouldGiveIt(t *testing.T) {
	const text = "HTTP/1.1 201 Made\r\ncontent-type:text/html \r\nSet-Cookie: a=1\r\nx-odd-NAME: \tv\r\n" +
		"ETag: \"x\"\r\nset-cookie: b=2\r\nTrailer: X-Sum, x-more\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"3\r\nabc\r\n0\r\nX-Sum: 6\r\nX-Extra: e\r\nContent-Length: 9\r\n\r\n"
	s := rawTCP(t, answering(text))
	_, got := exchangeOnce(t, provisioned(t, new(Transport)), request(t, "GET", s.Addr(), nil))
	want, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Header, got.Header); diff != "" {
		t.Errorf("header (-net/http +ours):\n%s", diff)
	}
	if diff := cmp.Diff(http.Header{"X-Sum": {"6"}, "X-More": nil, "X-Extra": {"e"}}, got.Trailer); diff != "" {
		t.Errorf("trailer (-want +got):\n%s", diff)
	}
	if got.Status != want.Status || got.Proto != want.Proto || got.ContentLength != -1 || !cmp.Equal(got.TransferEncoding, want.TransferEncoding) {
		t.Errorf("got %q %q %d %v", got.Status, got.Proto, got.ContentLength, got.TransferEncoding)
	}
}

func TestInterimResponsesReachTheTrace(t *testing.T) {
	s := rawTCP(t, answering("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"+
		"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	var got []int
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got = append(got, code)
			if code == 103 && h.Get("Link") != "</a>" {
				t.Errorf("103 with %v", h)
			}
			return nil
		},
	})
	exchangeOnce(t, provisioned(t, new(Transport)), requestCtx(ctx, t, "GET", s.Addr(), nil))
	if !cmp.Equal(got, []int{103, 102}) {
		t.Errorf("passed on %v, want 103 and 102, not 100", got)
	}
}

func TestTimeouts(t *testing.T) {
	quick := func() *Transport {
		return &Transport{ConnectTimeout: 1e8, SendTimeout: 1e8, ReadTimeout: 1e8}
	}
	t.Run("no answer", func(t *testing.T) {
		s := rawTCP(t, func(_ int, c net.Conn, _ *bufio.Reader) { _, _ = io.Copy(io.Discard, c) })
		start := time.Now()
		_, err := provisioned(t, quick()).RoundTrip(request(t, "GET", s.Addr(), nil))
		if d := time.Since(start); !isTimeout(err) || d < 100*time.Millisecond || d > time.Second {
			t.Errorf("%v after %v, want a timeout after 100 ms", err, d)
		}
		if want := "->" + s.Addr().String() + ": i/o timeout"; !strings.HasPrefix(err.Error(), "read header: timeout: read tcp ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("the error is %q, want read header: timeout: read tcp ...%s", err, want)
		}
	})
	t.Run("a header that drips is not silent", func(t *testing.T) {
		s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			for _, b := range "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc" {
				time.Sleep(10 * time.Millisecond) // the drip is what is tested
				_, _ = c.Write([]byte{byte(b)})
			}
		})
		got, _ := exchangeOnce(t, provisioned(t, quick()), request(t, "GET", s.Addr(), nil))
		if got.Body != "abc" || got.Broken {
			t.Errorf("got %+v, want abc", got)
		}
	})
	t.Run("a body that stops", func(t *testing.T) {
		s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na")
			_, _ = io.Copy(io.Discard, c)
		})
		res, err := provisioned(t, quick()).RoundTrip(request(t, "GET", s.Addr(), nil))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if string(b) != "a" || !isTimeout(err) {
			t.Errorf("got %q %v, want a and a timeout", b, err)
		}
	})
	t.Run("a server that does not read", func(t *testing.T) {
		hold := make(chan struct{})
		defer close(hold)
		s := rawTCP(t, func(int, net.Conn, *bufio.Reader) { <-hold })
		body := struct{ io.Reader }{io.LimitReader(zeros{}, 1<<30)}
		got, _ := exchangeOnce(t, provisioned(t, quick()), request(t, "PUT", s.Addr(), body))
		if got.Kind != "timeout" {
			t.Errorf("got %+v, want a timeout", got)
		}
	})
	t.Run("a slow client is not the server's fault", func(t *testing.T) {
		s := rawTCP(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write([]byte("a"))
			time.Sleep(300 * time.Millisecond) // three times the limits
			_, _ = w.Write([]byte("b"))
			w.Close()
		}()
		got, _ := exchangeOnce(t, provisioned(t, quick()), request(t, "PUT", s.Addr(), r))
		if got.Status != 200 || !got.Kept {
			t.Errorf("got %+v, want 200 and the connection kept", got)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
