// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-upstream/caddy-upstream/modules/nextupstream"
)

// keptBody keeps a copy of a request's body for $request_body, unless it is
// longer than the limit: then nginx has it in a file, and the variable is empty.
type keptBody struct {
	io.ReadCloser
	limit int64
	text  []byte
	over  bool
	whole bool // it has been read to its end
}

func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.over:
	case int64(len(b.text)+n) > b.limit:
		b.text, b.over = nil, true
	default:
		b.text = append(b.text, p[:n]...)
	}
	b.whole = b.whole || err == io.EOF
	return n, err
}

// timedBody notes whether a request's body has not come within its time.
type timedBody struct {
	io.ReadCloser
	late *atomic.Bool
}

func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		b.late.Store(true)
	}
	return n, err
}

// keepBody begins to keep the body if l asks for it.
func (st *state) keepBody(l *Location) {
	if l.KeepBody == 0 || st.body != nil || st.r.Body == nil || st.r.Body == http.NoBody {
		return
	}
	st.body = &keptBody{ReadCloser: st.r.Body, limit: l.KeepBody}
	st.r.Body = st.body
}

// requestBodyFile is $request_body_file.
func requestBodyFile(st *state) string {
	name, _ := caddyhttp.GetVar(st.r.Context(), nextupstream.BodyFileVar).(string)
	return name
}

// requestBody is $request_body, which a location without a proxied server does
// not have.
func requestBody(st *state) string {
	if st.body == nil || !st.body.whole || st.body.over || !st.proxied {
		return ""
	}
	return string(st.body.text)
}
