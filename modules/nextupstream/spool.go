// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// bufferSettings are the limits of request buffering, in bytes.
type bufferSettings struct {
	off                 bool
	keep                bool // until the request's end: response handlers may want it
	named               *BodyFiles
	memory, file, total int64
}

// tempTotal is the size of all temporary files of this process.
var tempTotal atomic.Int64

// body is a request body as the walk keeps it, in Walk.Extra.
type body interface {
	upstream.Releaser
	// replayable reports whether a further try can send the body whole.
	replayable() bool
}

// Prepare implements upstream.Front: it reads the request's body, or makes
// sure that it is sent once only.
func (t *Transport) Prepare(w *upstream.Walk, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		if !t.buffers.wantsEmpty(r) {
			return nil
		}
		r.Body = http.NoBody
	}
	earlier := w.Earlier()
	if _, kept := earlier.(*spool); !kept && (t.buffers.off || !bufferable(r) || r.ContentLength > t.buffers.file) {
		if b, ok := earlier.(*onceBody); ok && !b.replayable() && r.ContentLength < 0 {
			return errBodyGone
		}
		stream(w, r, r.Body)
		return nil
	}
	s := &spool{memory: takeMemory(min(t.buffers.memory, t.buffers.file)), named: t.buffers.named}
	whole, err := s.fill(r.Body, &t.buffers)
	switch {
	case err != nil:
		s.Release()
		return bodyError(r, err)
	case !whole: // too large after all
		stream(w, r, &tail{Reader: io.MultiReader(s.reader(), r.Body), spool: s, rest: r.Body})
		return nil
	case s.size == 0 && r.ContentLength != 0 && earlier != nil: // another handler has read it
		s.Release()
		if s, _ = earlier.(*spool); s == nil || !s.alive() {
			return errBodyGone
		}
	}
	if err := s.settle(); err != nil {
		s.Release()
		return bodyError(r, err)
	}
	w.Extra = s
	s.tell(r.Context())
	if t.buffers.keep {
		s.keep(r.Context())
	}
	r.Body = s.reader() // each try gets one of its own
	if len(r.Trailer) == 0 {
		r.ContentLength = s.size
		if s.size == 0 {
			r.Body = http.NoBody
		}
	}
	return nil
}

// errBodyGone is the result of a walk whose request's body another handler has
// sent and not kept. To send none would change the request.
var errBodyGone = caddyhttp.Error(http.StatusInternalServerError,
	errors.New("the request's body has been sent to another server before, and was not buffered"))

// bufferable reports whether r is of a kind whose body may be held back.
func bufferable(r *http.Request) bool {
	return len(r.Header["Upgrade"]) == 0 && r.Method != http.MethodConnect &&
		!strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") &&
		!caddyhttp.IsIncremental(r.Header) &&
		!httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade")
}

// bodyError is the result of a walk whose request body could not be read or
// kept.
func bodyError(r *http.Request, err error) error {
	var disk *diskError
	var he caddyhttp.HandlerError
	var tooLarge *http.MaxBytesError
	var timeout net.Error
	const doing = "reading the request's body"
	status := http.StatusBadRequest
	switch {
	case errors.As(err, &disk):
		status = http.StatusInternalServerError
	case r.Context().Err() != nil:
		return clientGone(doing)
	case errors.As(err, &he):
		return err
	case errors.As(err, &tooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		status = http.StatusRequestTimeout
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return clientGone(doing) // the context of a request ends only after it has been read
	}
	return caddyhttp.Error(status, &Error{err: fmt.Errorf("%s: %w", doing, err)})
}

// diskError is a failure of the temporary file.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

// spool is a request body that was read to its end: in memory, then in a file
// that has no name, or, if it is to have one, in the file alone. It can be read
// any number of times, by one reader at a time.
type spool struct {
	mu     sync.Mutex // the transport may still read when the walk ends
	memory *[]byte    // nil once released
	kept   bool       // to be released with the request, not with the walk
	used   int        // of memory
	named  *BodyFiles // nil: the file has no name
	whole  bool       // all of the body is there
	file   *os.File
	size   int64
}

// fill reads all of src. It stops early, and reports false, when src is larger
// than the limits allow.
func (s *spool) fill(src io.Reader, limits *bufferSettings) (whole bool, err error) {
	buf := *s.memory
	if s.named != nil && s.named.Always {
		buf = nil
	}
	for s.used < len(buf) {
		n, err := src.Read(buf[s.used:])
		s.used += n
		s.size += int64(n)
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	chunk := takeChunk()
	defer chunks.Put(chunk)
	for {
		n, err := src.Read(*chunk)
		if n > 0 {
			if werr := s.store((*chunk)[:n]); werr != nil {
				return false, werr
			}
		}
		switch {
		case err != nil && err != io.EOF:
			return false, err
		case s.size > limits.file || tempTotal.Load() > limits.total:
			return false, nil
		case err == io.EOF:
			return true, nil
		}
	}
}

func (s *spool) store(p []byte) error {
	if s.file == nil {
		if err := s.create(); err != nil {
			return &diskError{fmt.Errorf("buffering the request's body: %w", err)}
		}
	}
	n, err := s.file.Write(p)
	tempTotal.Add(int64(n))
	s.size += int64(n)
	if err != nil {
		return &diskError{fmt.Errorf("buffering the request's body: %w", err)}
	}
	return nil
}

// create makes the file; one with a name gets what is in memory, too.
func (s *spool) create() (err error) {
	if s.named == nil {
		s.file, err = tempFile()
		return err
	}
	if s.file, err = s.named.create(); err != nil {
		return err
	}
	n, err := s.file.Write((*s.memory)[:s.used])
	tempTotal.Add(int64(n))
	s.used = 0
	return err
}

// settle ends what fill has begun when the body is there: one that is empty gets
// a file, if it is to have one.
func (s *spool) settle() error {
	s.whole = true
	if s.named == nil || !s.named.Always || s.file != nil {
		return nil
	}
	if err := s.create(); err != nil {
		return &diskError{fmt.Errorf("buffering the request's body: %w", err)}
	}
	return nil
}

// reader returns a reader from the start of the body.
func (s *spool) reader() *spoolReader { return &spoolReader{spool: s} }

func (s *spool) readAt(p []byte, offset int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.memory == nil:
		return 0, os.ErrClosed
	case offset < int64(s.used):
		return copy(p, (*s.memory)[offset:s.used]), nil
	case offset >= s.size:
		return 0, io.EOF
	}
	n, err := s.file.ReadAt(p[:min(int64(len(p)), s.size-offset)], offset-int64(s.used))
	switch {
	case n > 0:
		err = nil
	case err != nil:
		err = &diskError{fmt.Errorf("reading the buffered request body: %w", err)}
	}
	return n, err
}

func (s *spool) replayable() bool { return true }

// keep makes the body outlive its walk: after an error, or in a response
// handler, a later handler may send it as well, as nginx does after an internal
// redirect. ctx is the request's and ends with it.
func (s *spool) keep(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept || s.memory == nil {
		return
	}
	s.kept = true
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.freeLocked()
	})
}

func (s *spool) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory != nil
}

// Release implements upstream.Releaser: unless the body is kept, it frees the
// memory and the file.
func (s *spool) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept {
		s.freeLocked()
	}
}

func (s *spool) freeLocked() {
	if s.memory == nil {
		return
	}
	giveMemory(s.memory)
	s.memory = nil
	if s.file != nil {
		tempTotal.Add(int64(s.used) - s.size)
		s.file.Close()
		if s.named != nil && (!s.named.Keep || !s.whole) {
			_ = os.Remove(s.file.Name())
		}
	}
}

// spoolReader is the body of one try. It implements exchange.Rewinder.
type spoolReader struct {
	spool  *spool
	offset int64
}

func (r *spoolReader) Read(p []byte) (int, error) {
	n, err := r.spool.readAt(p, r.offset)
	r.offset += int64(n)
	return n, err
}

// Rewind implements exchange.Rewinder.
func (r *spoolReader) Rewind() error {
	r.offset = 0
	return nil
}

// Close does nothing: the body stays until the walk has ended.
func (r *spoolReader) Close() error { return nil }
