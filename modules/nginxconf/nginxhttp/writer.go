// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// writer is the ResponseWriter of a request: it adds header fields as
// add_header does, counts what is sent, and keeps back a response whose header
// asks for another one (X-Accel-Redirect).
type writer struct {
	*caddyhttp.ResponseWriterWrapper
	st     *state
	status int
	size   int64
	accel  string // the target of an X-Accel-Redirect; the response is dropped
	pace   *pace  // nil without a limit

	gone     bool // the client gets no response
	flushed  bool // somebody wanted the client to have what there is
	hijacked bool
	upgraded atomic.Int64 // bytes sent after the connection was taken over
}

func newWriter(w http.ResponseWriter, st *state) *writer {
	return &writer{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, st: st}
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status != 0 || w.accel != "" {
		return
	}
	if status == statusClientLeft && w.st.upstream == nil { // what reverse_proxy says of a request that it could not read
		if w.gone, w.status = true, status; w.st.bodyLate.Load() {
			w.status = http.StatusRequestTimeout
		}
		return
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	h := w.Header()
	if to := h.Get("X-Accel-Redirect"); to != "" {
		w.accel = to
		return
	}
	h.Del("X-Accel-Redirect")
	if w.st.errStatus > 0 {
		status = w.st.errStatus
	}
	withoutOurVia(h)
	if _, ok := h["Server"]; !ok {
		h["Server"] = []string{"Caddy"}
	}
	w.addHeaders(status)
	if status != http.StatusOK && status != http.StatusPartialContent && status != http.StatusNotModified {
		if _, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
			h.Del("Last-Modified")
		}
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // none is made up
	}
	w.status = status
	w.pace = w.st.limitRate()
	w.ResponseWriter.WriteHeader(status)
}

// addHeaders adds what add_header says for a status.
func (w *writer) addHeaders(status int) {
	if w.st.location == nil {
		return
	}
	for _, a := range w.st.location.AddHeaders {
		if a.Always || adds(status) {
			a.add(w.Header(), w.st.expand(a.Value))
		}
	}
}

// add adds the field to a header. There is one ETag and one Last-Modified: they
// are replaced, or taken out by an empty value.
func (a *AddHeader) add(h http.Header, v string) {
	if strings.EqualFold(a.Name, "ETag") || strings.EqualFold(a.Name, "Last-Modified") {
		deleteFold(h, a.Name)
	}
	if v != "" {
		h[a.Name] = append(h[a.Name], v)
	}
}

// adds reports whether add_header without always is for this status.
func adds(status int) bool {
	switch status {
	case 200, 201, 204, 206, 301, 302, 303, 304, 307, 308:
		return true
	}
	return false
}

// withoutOurVia takes out what Caddy's proxy adds and nginx does not.
func withoutOurVia(h http.Header) {
	if v, ok := h["Via"]; ok {
		v = slices.DeleteFunc(v, func(s string) bool { return strings.HasSuffix(s, " Caddy") })
		if h["Via"] = v; len(v) == 0 {
			delete(h, "Via")
		}
	}
}

// limitWaiting makes the timeouts of l those of the request and its response; it
// ends those of a location that the request was in before.
func (st *state) limitWaiting(l *Location) {
	for _, off := range st.timeoutsOff {
		off()
	}
	st.timeoutsOff = nil
	r, w := caddyhttp.IdleTimeoutsFromContext(st.r.Context())
	if w != nil && l.SendTimeout > 0 {
		st.timeoutsOff = append(st.timeoutsOff, w.Override(time.Duration(l.SendTimeout), 0, 0))
	}
	if r != nil && l.BodyTimeout > 0 {
		st.timeoutsOff = append(st.timeoutsOff, r.Override(time.Duration(l.BodyTimeout), 0))
	}
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.accel != "" || w.gone:
		return len(p), nil
	case w.pace != nil:
		return w.writePaced(p)
	}
	return w.write(p)
}

func (w *writer) write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.size += int64(n)
	return n, err
}

// writePaced writes p in the pieces that the limit allows.
func (w *writer) writePaced(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		if written > 0 || w.size > 0 {
			_ = w.FlushError() // before a pause
		}
		n, err := w.pace.wait(w.st.r.Context(), len(p)-written)
		if err != nil {
			return written, err
		}
		n, err = w.write(p[written : written+n])
		w.pace.took(int64(n), time.Now())
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// ReadFrom implements io.ReaderFrom.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.accel != "" || w.gone:
		return io.Copy(io.Discard, r)
	case w.pace != nil:
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	n, err := w.ResponseWriterWrapper.ReadFrom(r)
	w.size += n
	return n, err
}

// Flush implements http.Flusher for http.ResponseController.
func (w *writer) FlushError() error {
	if w.accel != "" || w.gone {
		return nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.flushed = true
	return http.NewResponseController(w.ResponseWriter).Flush() //nolint:bodyclose
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack() //nolint:bodyclose
	if err != nil {
		return c, rw, err
	}
	return upgradedConn{c, &w.upgraded}, rw, nil
}

// upgradedConn counts what is sent to the client of an upgraded connection. It
// has no CloseWrite: as in nginx the end of one side is that of the connection.
type upgradedConn struct {
	net.Conn
	sent *atomic.Int64
}

// Write implements net.Conn.
func (c upgradedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// bodySize is how many bytes the client has got without the header.
func (w *writer) bodySize() int64 { return w.size + w.upgraded.Load() }

// began reports whether the client has got a header already.
func (w *writer) began() bool { return w.status != 0 }
