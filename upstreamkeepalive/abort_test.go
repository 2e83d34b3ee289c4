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
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// openFiles counts this process's descriptors, where that can be seen.
func openFiles(tb testing.TB) int {
	tb.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// noLeak runs f twenty times and then finds no more descriptors and goroutines
// than after the first time.
func noLeak(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	f(t)
	files, routines := 0, 0
	eventually(t, "settled", func() bool {
		was := files
		files, routines = openFiles(t), runtime.NumGoroutine()
		return was == files
	})
	for range 20 {
		f(t)
	}
	eventually(t, "descriptors closed", func() bool { return openFiles(t) <= files+2 })
	eventually(t, "goroutines ended", func() bool { return runtime.NumGoroutine() <= routines+4 })
}

// aborted asserts that an exchange ended soon after its client left.
func aborted(t *testing.T, since time.Time, err error) {
	t.Helper()
	var e *exchange.Error
	if !errors.As(err, &e) || e.Kind != exchange.ClientGone || !errors.Is(err, context.Canceled) {
		t.Errorf("Exchange() = %v, want client gone", err)
	}
	if d := time.Since(since); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestAClientThatLeaves(t *testing.T) {
	started := make(chan bool, 1)
	silent := func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			started <- true
		}
		_, _ = io.Copy(io.Discard, r)
	}
	s := rawTCP(t, silent)
	release := make(chan bool)
	unread := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) { // reads the head only
		_, _ = http.ReadRequest(r)
		started <- true
		<-release
	})
	half := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
		_, _ = io.Copy(io.Discard, r)
	})
	hello := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) { // reads the TLS hello, says nothing
		_, _ = r.ReadByte()
		started <- true
		_, _ = io.Copy(io.Discard, r)
	})
	plain, secure := provisioned(t, new(Transport)), provisioned(t, tlsTransport(new(Transport)))

	// leave starts an exchange and aborts it when the server has noticed it.
	leave := func(t *testing.T, tr *Transport, req *http.Request) {
		a := new(exchange.Attempt)
		done := make(chan error, 1)
		go func() {
			_, err := tr.Exchange(req, a)
			done <- err
		}()
		<-started
		start := time.Now()
		a.Abort()
		aborted(t, start, <-done)
	}
	t.Run("before it begins", func(t *testing.T) {
		noLeak(t, func(t *testing.T) {
			a := new(exchange.Attempt)
			a.Abort()
			_, err := plain.Exchange(request(t, "GET", s.Addr(), nil), a)
			aborted(t, time.Now(), err)
		})
	})
	t.Run("during the handshake", func(t *testing.T) {
		noLeak(t, func(t *testing.T) { leave(t, secure, request(t, "GET", hello.Addr(), nil)) })
	})
	t.Run("during the handshake, by its context", func(t *testing.T) {
		noLeak(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() { <-started; cancel() }()
			_, err := secure.Exchange(requestCtx(ctx, t, "GET", hello.Addr(), nil), new(exchange.Attempt))
			aborted(t, time.Now(), err)
		})
	})
	t.Run("while waiting", func(t *testing.T) {
		noLeak(t, func(t *testing.T) { leave(t, plain, request(t, "GET", s.Addr(), nil)) })
	})
	t.Run("while the server takes no more", func(t *testing.T) {
		noLeak(t, func(t *testing.T) {
			leave(t, plain, request(t, "PUT", unread.Addr(), struct{ io.Reader }{io.LimitReader(zeros{}, 1<<30)}))
			release <- true
		})
	})
	t.Run("in the middle of its upload", func(t *testing.T) {
		noLeak(t, func(t *testing.T) {
			r, w := io.Pipe()
			defer w.Close() // as net/http closes the body when the handler is done
			leave(t, plain, request(t, "PUT", s.Addr(), r))
		})
	})
	t.Run("while it reads", func(t *testing.T) {
		noLeak(t, func(t *testing.T) {
			e := newEnder()
			a := &exchange.Attempt{Ender: e}
			res, err := plain.Exchange(request(t, "GET", half.Addr(), nil), a)
			if err != nil {
				t.Fatal(err)
			}
			go a.Abort()
			_, err = io.ReadAll(res.Body)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the body ended with %v, want context.Canceled", err)
			}
			res.Body.Close()
			<-e.ch
			if e.count() != 1 || e.err == nil {
				t.Errorf("Ended %d times, with %v", e.count(), e.err)
			}
		})
	})
	t.Run("while nobody reads or closes", func(t *testing.T) {
		noLeak(t, func(t *testing.T) {
			e := newEnder()
			a := &exchange.Attempt{Ender: e}
			if _, err := plain.Exchange(request(t, "GET", half.Addr(), nil), a); err != nil {
				t.Fatal(err)
			}
			a.Abort()
			<-e.ch
		})
	})
	t.Run("by its context, without a wrapper", func(t *testing.T) {
		noLeak(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() { <-started; cancel() }()
			_, err := plain.RoundTrip(requestCtx(ctx, t, "GET", s.Addr(), nil))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("RoundTrip() = %v", err)
			}
		})
	})
	t.Run("after the end it does no harm", func(t *testing.T) {
		ok := rawTCP(t, answering(okEmpty))
		e := newEnder()
		a := &exchange.Attempt{Ender: e}
		res, err := plain.Exchange(request(t, "GET", ok.Addr(), nil), a)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		a.Abort()
		b := new(exchange.Attempt)
		res, err = plain.Exchange(request(t, "GET", ok.Addr(), nil), b)
		if err != nil || !b.Reused {
			t.Fatalf("Exchange() = %v, reused %v", err, b.Reused)
		}
		res.Body.Close()
		if e.count() != 1 {
			t.Errorf("Ended %d times", e.count())
		}
	})
}

func TestAnEarlyResponseIsDelivered(t *testing.T) {
	const size = 10 << 20
	answer := "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong"
	for _, name := range []string{"the server closes", "the server stops reading", "the server reads on"} {
		for _, kind := range []string{"stream", "rewindable"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				stop := make(chan bool)
				s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					_, _ = io.WriteString(c, answer)
					switch name {
					case "the server stops reading":
						<-stop
					case "the server reads on":
						_, _ = io.Copy(io.Discard, r)
					}
				})
				defer close(stop)
				tr := provisioned(t, new(Transport))
				req := request(t, "PUT", s.Addr(), nil)
				req.ContentLength = size
				var body *rewindable
				if kind == "rewindable" {
					body = &rewindable{Reader: strings.NewReader(strings.Repeat("x", size))}
					req.Body = body
				} else {
					req.Body = io.NopCloser(io.LimitReader(zeros{}, size))
				}
				res, err := tr.Exchange(req, new(exchange.Attempt))
				if err != nil {
					t.Fatalf("Exchange() = %v", err)
				}
				b, err := io.ReadAll(res.Body)
				if res.StatusCode != 413 || string(b) != "long" || err != nil {
					t.Errorf("got %d %q %v", res.StatusCode, b, err)
				}
				res.Body.Close()
				if idleConns(tr) != 0 {
					t.Error("a connection with half a request on it was kept")
				}
				if body != nil {
					// Nobody else may use it now: the race detector watches.
					_ = body.Rewind()
				}
			})
		}
	}
}

func TestBothDirectionsFlowAtOnce(t *testing.T) {
	s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			buf := make([]byte, 1)
			for {
				if _, err := io.ReadFull(req.Body, buf); err != nil {
					break
				}
				_, _ = io.WriteString(c, "1\r\n"+string(buf)+"\r\n")
			}
			_, _ = io.WriteString(c, "0\r\n\r\n")
		}
	})
	tr := provisioned(t, new(Transport))
	for range 3 {
		r, w := io.Pipe()
		res, err := tr.Exchange(request(t, "POST", s.Addr(), r), new(exchange.Attempt))
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 8)
		for _, b := range "echo" {
			if _, err := w.Write([]byte{byte(b)}); err != nil {
				t.Fatal(err)
			}
			if n, err := res.Body.Read(buf); err != nil || string(buf[:n]) != string(b) {
				t.Fatalf("got %q %v, want %q", buf[:n], err, b)
			}
		}
		w.Close()
		if n, err := res.Body.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("got %d %v at the end", n, err)
		}
		res.Body.Close()
	}
	if s := tr.ConnStats(); len(s) != 1 || s[0].Created != 1 {
		t.Errorf("ConnStats() = %+v, want one connection", s)
	}
}

func upgrading(t *testing.T, handle func(c net.Conn, r *bufio.Reader)) *rawServer {
	return rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if req, err := http.ReadRequest(r); err != nil || req.Header.Get("Upgrade") != "test" {
			return
		}
		// The first bytes of the other protocol come with the header.
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nhi ")
		handle(c, r)
	})
}

func upgrade(t *testing.T, tr *Transport, to net.Addr, a *exchange.Attempt) io.ReadWriteCloser {
	t.Helper()
	req := request(t, "GET", to, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "test")
	res, err := tr.Exchange(req, a)
	if err != nil {
		t.Fatalf("Exchange() = %v", err)
	}
	rw, ok := res.Body.(io.ReadWriteCloser)
	if !ok || res.StatusCode != 101 {
		t.Fatalf("got %d with a %T", res.StatusCode, res.Body)
	}
	return rw
}

func TestAnUpgradedConnectionHalfCloses(t *testing.T) {
	s := upgrading(t, func(c net.Conn, r *bufio.Reader) {
		b, _ := io.ReadAll(r) // until the client's side is closed
		_, _ = io.WriteString(c, "you said "+string(b))
	})
	e := newEnder()
	rw := upgrade(t, provisioned(t, new(Transport)), s.Addr(), &exchange.Attempt{Ender: e})
	if _, err := io.WriteString(rw, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := rw.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(rw)
	if string(b) != "hi you said hello" || err != nil {
		t.Errorf("got %q %v", b, err)
	}
	if e.count() != 0 {
		t.Error("the exchange ended before it was closed")
	}
	rw.Close()
	rw.Close()
	if e.count() != 1 {
		t.Errorf("Ended %d times, want 1", e.count())
	}
}

func TestAnUpgradedConnectionEnds(t *testing.T) {
	s := upgrading(t, func(c net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	tr := provisioned(t, &Transport{ReadTimeout: 2e8})
	readAll := func(rw io.Reader) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(rw)
			done <- err
		}()
		return done
	}
	t.Run("when it is closed while it waits", func(t *testing.T) {
		rw := upgrade(t, tr, s.Addr(), new(exchange.Attempt))
		done := readAll(rw)
		rw.Close()
		<-done
	})
	t.Run("when the client leaves", func(t *testing.T) {
		e := newEnder()
		a := &exchange.Attempt{Ender: e}
		rw := upgrade(t, tr, s.Addr(), a)
		done := readAll(rw)
		a.Abort()
		<-done
		<-e.ch
		rw.Close()
		if e.count() != 1 {
			t.Errorf("Ended %d times, want 1", e.count())
		}
	})
	t.Run("when neither side says anything", func(t *testing.T) {
		rw := upgrade(t, tr, s.Addr(), new(exchange.Attempt))
		defer rw.Close()
		if err := <-readAll(rw); !isTimeout(err) {
			t.Errorf("ended with %v, want a timeout", err)
		}
	})
	t.Run("but not while the client talks", func(t *testing.T) {
		rw := upgrade(t, tr, s.Addr(), new(exchange.Attempt))
		defer rw.Close()
		start, done := time.Now(), readAll(rw)
		for time.Since(start) < 600*time.Millisecond {
			if _, err := io.WriteString(rw, "x"); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-done:
				t.Fatalf("ended with %v after %v", err, time.Since(start))
			case <-time.After(20 * time.Millisecond):
			}
		}
		if err := <-done; !isTimeout(err) {
			t.Errorf("ended with %v, want a timeout", err)
		}
	})
}

func TestAPlainAnswerToAnUpgrade(t *testing.T) {
	s := rawTCP(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"))
	req := request(t, "GET", s.Addr(), nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "test")
	if got, _ := exchangeOnce(t, provisioned(t, new(Transport)), req); got.Body != "no" || !got.Kept {
		t.Errorf("got %+v", got)
	}
}
