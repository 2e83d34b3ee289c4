// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"io"
	"net/http"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

type bodyMode uint8

const (
	emptyBody bodyMode = iota
	lengthBody
	chunkedBody
	closeBody // until the server closes
	switched  // no longer HTTP
)

// directRead is the size from which a read goes past the buffer.
const directRead = 1 << 10

// incoming is the state of a response's body.
type incoming struct {
	mode  bodyMode
	keep  bool  // the server lets the connection live, and the request was sent
	left  int64 // of the body, or of the chunk
	stage int   // of a chunked body
	waste int   // bytes of chunk extensions not yet outweighed by data
	scan  int   // how far a trailer has been looked at
	err   error // how the body ended, io.EOF included
}

func (in *incoming) start(method string, h *head, sent bool) {
	*in = incoming{keep: sent && h.minor > 0 && !h.close}
	switch {
	case h.code == http.StatusSwitchingProtocols:
		in.mode, in.keep = switched, false
	case bodiless(method, h.code):
		in.mode = emptyBody
	case h.chunked:
		in.mode = chunkedBody
	case h.length == 0:
		in.mode = emptyBody
	case h.length > 0:
		in.mode, in.left = lengthBody, h.length
	default:
		in.mode, in.keep = closeBody, false
	}
}

// length is what http.Response.ContentLength says.
func (in *incoming) length(method string, h *head) int64 {
	switch in.mode {
	case emptyBody:
		if method == http.MethodHead && !bodiless("", h.code) {
			return h.length
		}
		return 0
	case lengthBody:
		return h.length
	}
	return -1
}

func (in *incoming) reusable() bool {
	return in.keep && (in.mode == emptyBody || in.err == io.EOF)
}

// Read implements io.Reader for the response's body.
func (x *trip) Read(p []byte) (n int, err error) {
	in := &x.in
	if in.err != nil {
		return 0, in.err
	}
	x.a.BodyRead()
	switch in.mode {
	case emptyBody:
		err = io.EOF
	case lengthBody:
		n, err = x.readLength(p)
	case chunkedBody:
		n, err = x.readChunked(p)
	default:
		n, err = x.receive(p)
	}
	if err != nil {
		in.err = x.bodyError(err)
		x.finish()
		err = in.err
	}
	return n, err
}

// bodyError explains what broke a body.
func (x *trip) bodyError(err error) error {
	if err == io.EOF {
		return err
	}
	if x.body != nil {
		if cause := x.body.cause.Load(); cause != nil {
			return cause.Err
		}
	}
	if x.a.Aborted() {
		return x.gone("").Err
	}
	return err
}

// finish gives the connection back and tells the end.
func (x *trip) finish() {
	err := x.in.err
	if err == io.EOF {
		err = nil
	}
	now := time.Now()
	x.release(err, now)
	x.end(err, now)
}

// Close implements io.Closer for the response's body. A body that has not been
// read to its end costs the connection.
func (x *trip) Close() error {
	if x.in.err == nil {
		x.in.err = x.bodyError(exchange.ErrClosed)
		if x.in.mode == emptyBody {
			x.in.err = io.EOF
		}
		x.finish()
	}
	return nil
}

// receive reads what is buffered, or else from the server.
func (x *trip) receive(p []byte) (int, error) {
	c := x.c
	if c.r == c.w {
		if len(p) >= directRead {
			c.readWithin(time.Now(), x.t.readTimeout)
			n, err := c.nc.Read(p)
			x.a.AddReceived(int64(n))
			if n > 0 {
				err = nil
			}
			return n, err
		}
		if len(p) == 0 {
			return 0, nil
		}
		if err := x.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.buf[c.r:c.w])
	c.r += n
	return n, nil
}

func (x *trip) fill() error {
	x.c.readWithin(time.Now(), x.t.readTimeout)
	n, err := x.c.fill()
	x.a.AddReceived(int64(n))
	return err
}

// whole turns an end of the stream into what it is within a body.
func whole(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (x *trip) readLength(p []byte) (int, error) {
	in := &x.in
	if int64(len(p)) > in.left {
		p = p[:in.left]
	}
	n, err := x.receive(p)
	in.left -= int64(n)
	if err == nil && in.left == 0 {
		return n, io.EOF // with the last bytes: it saves the caller a Read
	}
	return n, whole(err)
}
