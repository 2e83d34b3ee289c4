// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// tunnel is the body of a 101 response: the connection itself. As in nginx,
// read_timeout without traffic in either direction ends it.
type tunnel struct {
	*trip
	used   atomic.Int64 // when something was last written, Unix nanoseconds
	closed atomic.Bool
}

// Read returns what came with the header first.
func (t *tunnel) Read(p []byte) (int, error) {
	c := t.c
	if c.r < c.w {
		n := copy(p, c.buf[c.r:c.w])
		c.r += n
		return n, nil
	}
	for {
		now := time.Now()
		c.readWithin(now, t.t.readTimeout)
		n, err := c.nc.Read(p)
		if n > 0 {
			t.a.AddReceived(int64(n))
			return n, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.aborted.Load() &&
			time.Since(time.Unix(0, t.used.Load())) < t.t.readTimeout {
			continue
		}
		return n, err
	}
}

func (t *tunnel) Write(p []byte) (int, error) {
	now := time.Now()
	t.used.Store(now.UnixNano())
	t.c.writeWithin(now, t.t.sendTimeout)
	n, err := t.c.nc.Write(p)
	t.a.AddSent(int64(n))
	return n, err
}

// CloseWrite ends the client's side of the conversation only.
func (t *tunnel) CloseWrite() error {
	if cw, ok := t.c.nc.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close ends both sides, and the exchange. It may be called at any time, also
// while Read or Write wait.
func (t *tunnel) Close() error {
	if t.closed.CompareAndSwap(false, true) {
		t.a.Detach()
		t.c.closeNow()
		t.end(nil, time.Now())
	}
	return nil
}

var _ io.ReadWriteCloser = (*tunnel)(nil)
