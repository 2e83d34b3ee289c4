// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// stream makes src the body of r, to be sent once.
func stream(w *upstream.Walk, r *http.Request, src io.ReadCloser) {
	b := &onceBody{ReadCloser: src, length: r.ContentLength, http1: r.ProtoMajor == 1}
	w.Extra = b
	r.Body = b
}

// onceBody is a body that is not buffered: once any of it was read, it cannot
// be sent again.
type onceBody struct {
	io.ReadCloser
	length int64 // -1: unknown
	http1  bool
	read   atomic.Bool
	got    atomic.Int64
	over   atomic.Bool // it has ended, or broken off
}

func (b *onceBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	n, err := b.ReadCloser.Read(p)
	if b.got.Add(int64(n)) == b.length || err != nil {
		b.over.Store(true)
	}
	return n, err
}

// outstanding reports whether the client has not sent all of it.
func (b *onceBody) outstanding() bool { return b.length != 0 && !b.over.Load() }

// Close leaves the body open if none of it was read: a transport closes the
// body also after it could not even connect, and then the next server gets it.
// It also does while an HTTP/1 client has more to send: closing would wait for
// that, and the answer with it. The server of the client's connection closes it
// in the end.
func (b *onceBody) Close() error {
	if b.replayable() || b.http1 && b.outstanding() {
		return nil
	}
	return b.ReadCloser.Close()
}

func (b *onceBody) replayable() bool { return !b.read.Load() }

// turn is a body that is not buffered in the hands of one try. Transports over
// HTTP/2 may begin to read it when the server has answered or failed already:
// then the body belongs to the next try.
type turn struct {
	body *onceBody

	mu   sync.Mutex // guards over; held while it is decided whether there is a next try
	over bool
}

var errTurnOver = errors.New("the request body belongs to another try")

// Read implements io.Reader.
func (t *turn) Read(p []byte) (int, error) {
	if !t.begin() {
		return 0, errTurnOver
	}
	return t.body.Read(p)
}

func (t *turn) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.body.read.Store(true)
	}
	return !t.over
}

// Close implements io.Closer.
func (t *turn) Close() error {
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over {
		return nil
	}
	return t.body.Close()
}

// pass decides whether the body goes to another try, by next. Whoever has t
// does not begin to read then, nor meanwhile.
func (t *turn) pass(next func() bool) bool {
	if t == nil {
		return next()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = next()
	return t.over
}

// Release implements upstream.Releaser.
func (b *onceBody) Release() {
	if t, ok := b.ReadCloser.(*tail); ok {
		t.spool.Release()
	}
}

// tail is a body of which the first part was spooled before it turned out to
// be too large.
type tail struct {
	io.Reader
	spool *spool
	rest  io.Closer
}

func (t *tail) Close() error { return t.rest.Close() }

// The first part of a body is kept in pooled memory of the default size; other
// sizes are rare and come from the heap.
var memories = sync.Pool{New: func() any { b := make([]byte, defaultBufferSize); return &b }}

func takeMemory(size int64) *[]byte {
	if size == defaultBufferSize {
		return memories.Get().(*[]byte)
	}
	b := make([]byte, size)
	return &b
}

func giveMemory(b *[]byte) {
	if len(*b) == defaultBufferSize {
		memories.Put(b)
	}
}

var chunks = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

func takeChunk() *[]byte { return chunks.Get().(*[]byte) }
