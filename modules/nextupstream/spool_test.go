// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

const (
	memoryLimit = 100
	fileLimit   = 100_000
)

// small are limits that tests reach.
var small = fmt.Sprintf(`, "request_buffer_size": %d, "request_max_temp_file": %d`, memoryLimit, fileLimit)

// TestABodyIsSentAgainUpToTheLimitExactly fails the first try after it has read
// the body.
func TestABodyIsSentAgainUpToTheLimitExactly(t *testing.T) {
	for _, size := range []int{0, 1, memoryLimit - 1, memoryLimit, memoryLimit + 1, fileLimit - 1, fileLimit, fileLimit + 1, 3 * fileLimit} {
		for name, reader := range map[string]func(io.Reader) io.Reader{
			"plain": func(r io.Reader) io.Reader { return r }, "end with the data": iotest.DataErrReader, "halves": iotest.HalfReader,
		} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d bytes, %s, chunked %v", size, name, chunked), func(t *testing.T) {
					testRepeat(t, size, reader, chunked)
				})
			}
		}
	}
}

func testRepeat(t *testing.T, size int, reader func(io.Reader) io.Reader, chunked bool) {
	body := bytes.Repeat([]byte("0123456789abcdef~"), size/17+1)[:size]
	var got []string
	p := newProxy(t, small, func(try int, r *http.Request) (*http.Response, error) {
		all := []byte{}
		if r.Body != nil {
			var err error
			if all, err = io.ReadAll(r.Body); err != nil {
				t.Errorf("reading the body: %v", err)
			}
			r.Body.Close()
		}
		got = append(got, fmt.Sprintf("%x", sha256.Sum256(all)))
		if try == 1 {
			return nil, syscall.ECONNRESET
		}
		return ok(r, "fine"), nil
	})
	r := httptest.NewRequest("PUT", "/", reader(bytes.NewReader(body)))
	r.ContentLength = int64(size)
	if chunked {
		r.ContentLength = -1
	}
	status, _, _ := p.serve(r)
	want := []string{fmt.Sprintf("%x", sha256.Sum256(body))}
	if size <= fileLimit {
		want = append(want, want[0])
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("servers got %v, want %v", got, want)
	}
	if wantStatus := map[bool]int{true: 200, false: 502}[size <= fileLimit]; status != wantStatus {
		t.Errorf("status %d, want %d", status, wantStatus)
	}
}

// TestABodyBeyondTheLimitGoesToTheNextServerWhileItIsUnread lets the first
// server refuse the connection, after which a transport closes the body.
func TestABodyBeyondTheLimitGoesToTheNextServerWhileItIsUnread(t *testing.T) {
	for _, options := range []string{small, `, "request_buffering": "off"`, small + `, "request_max_temp_total": 1`} {
		for _, length := range []int64{2 * fileLimit, -1} {
			t.Run(fmt.Sprint(options, length), func(t *testing.T) {
				body := bytes.Repeat([]byte("x"), 2*fileLimit)
				var got []byte
				p := newProxy(t, options, func(try int, r *http.Request) (_ *http.Response, err error) {
					defer r.Body.Close()
					if try == 1 {
						return nil, reverseproxy.NewDialError(syscall.ECONNREFUSED)
					}
					if got, err = io.ReadAll(r.Body); err != nil {
						return nil, err
					}
					return ok(r, "fine"), nil
				})
				r := httptest.NewRequest("POST", "/", &closing{Reader: bytes.NewReader(body)})
				r.ContentLength = length
				if status, _, err := p.serve(r); status != 200 || !bytes.Equal(got, body) {
					t.Errorf("status %d (%v), %d bytes arrived; want 200, %d", status, err, len(got), len(body))
				}
			})
		}
	}
}

// closing is a body that cannot be read after it was closed, as net/http's.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Read(p []byte) (int, error) {
	if c.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return c.Reader.Read(p)
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestTrailersAreThereOnEachTry(t *testing.T) {
	for _, body := range []string{"", "text"} {
		var r *http.Request
		p := newProxy(t, "", func(try int, out *http.Request) (*http.Response, error) {
			got, err := io.ReadAll(out.Body)
			if string(got) != body || err != nil || out.ContentLength != -1 || out.Trailer.Get("X-Sum") != "7" {
				t.Errorf("try %d: body %q (%v), length %d, trailer %v", try, got, err, out.ContentLength, out.Trailer)
			}
			if try == 1 {
				return nil, syscall.ECONNRESET
			}
			return ok(out, "fine"), nil
		})
		end := readerFunc(func([]byte) (int, error) {
			r.Trailer.Set("X-Sum", "7")
			return 0, io.EOF
		})
		r = httptest.NewRequest("PUT", "/", io.MultiReader(strings.NewReader(body), end))
		r.ContentLength, r.Trailer = -1, http.Header{"X-Sum": nil}
		if status, _, err := p.serve(r); status != 200 {
			t.Errorf("status %d (%v), want 200", status, err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestADiskThatCannotBeWrittenIs500AndNobodysFailure(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	p := newProxy(t, small, func(int, *http.Request) (*http.Response, error) {
		t.Error("a server was asked")
		return nil, syscall.ECONNRESET
	})
	r := httptest.NewRequest("PUT", "/", strings.NewReader(strings.Repeat("x", memoryLimit+1)))
	if status, _, err := p.serve(r); status != 500 {
		t.Errorf("status %d (%v), want 500", status, err)
	}
}

func TestAFullDiskIs500(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		testnet.Missing(t, err.Error())
	}
	s := &spool{memory: takeMemory(memoryLimit), file: full}
	_, err = s.fill(strings.NewReader(strings.Repeat("x", 2*memoryLimit)), &bufferSettings{memory: memoryLimit, file: fileLimit, total: fileLimit})
	s.Release()
	result := bodyError(httptest.NewRequest("PUT", "/", nil), err)
	if result == nil || !strings.Contains(result.Error(), "HTTP 500") || !strings.Contains(result.Error(), "no space left") {
		t.Errorf("result %v, want HTTP 500 and its cause", result)
	}
	if n := tempTotal.Load(); n != 0 {
		t.Errorf("%d bytes of temporary files are left", n)
	}
}

func TestAReleasedSpoolCannotBeRead(t *testing.T) {
	s := &spool{memory: takeMemory(memoryLimit)}
	if whole, err := s.fill(strings.NewReader("text"), &bufferSettings{memory: memoryLimit, file: fileLimit, total: fileLimit}); !whole || err != nil {
		t.Fatal(whole, err)
	}
	r := s.reader()
	s.Release()
	s.Release()
	if n, err := r.Read(make([]byte, 10)); n != 0 || err != os.ErrClosed {
		t.Errorf("Read() = %d, %v, want 0, %v", n, err, os.ErrClosed)
	}
}
