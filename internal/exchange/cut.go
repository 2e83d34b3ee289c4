// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Cut makes Abort reach what goes over a transport that knows no attempts.
type Cut struct {
	attempt *Attempt
	cancel  context.CancelFunc

	mu   sync.Mutex // guards body
	body io.Closer  // of a response
}

// Breakable returns a context for a round trip that ends when a is aborted, or
// with ctx. Either End or Guard has to follow.
func Breakable(ctx context.Context, a *Attempt) (context.Context, *Cut) {
	c := &Cut{attempt: a}
	ctx, c.cancel = context.WithCancel(ctx)
	if !a.Attach(c) {
		c.cancel()
	}
	return ctx, c
}

// Abort implements Aborter. A connection that was upgraded does not hang on its
// request's context any more, so the body is closed, too.
func (c *Cut) Abort() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.body != nil {
		go c.body.Close() // it may wait
	}
}

// End is called when there is no response.
func (c *Cut) End() {
	c.attempt.Detach()
	c.cancel()
}

// Guard makes the end of res's body that of the cut.
func (c *Cut) Guard(res *http.Response) {
	if res.Body == http.NoBody {
		c.End()
		return
	}
	c.mu.Lock()
	c.body = res.Body
	c.mu.Unlock()
	body := &cutBody{ReadCloser: res.Body, cut: c}
	if rw, ok := res.Body.(io.ReadWriteCloser); ok {
		res.Body = &cutConn{cutBody: body, Writer: rw}
		return
	}
	res.Body = body
}

type cutBody struct {
	io.ReadCloser
	cut *Cut
}

func (b *cutBody) Close() error {
	err := b.ReadCloser.Close()
	b.cut.End()
	return err
}

type cutConn struct {
	*cutBody
	io.Writer
}

// CloseWrite ends the direction to the server, if the connection can.
func (c *cutConn) CloseWrite() error {
	if w, ok := c.Writer.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
