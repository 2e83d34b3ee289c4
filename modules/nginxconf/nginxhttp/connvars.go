// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
)

// connVariables are those of the client's connection, which a Connections
// wrapper of the listener knows.
var connVariables = map[string]func(*state) string{
	"connection":          func(st *state) string { return st.ofConn(func(c *connection) uint64 { return c.number }) },
	"connection_requests": func(st *state) string { return st.ofConn(func(*connection) uint64 { return st.requestNumber }) },
	"connection_time": func(st *state) string {
		if st.conn == nil {
			return ""
		}
		return secondsText(time.Since(st.conn.start))
	},
	"bytes_sent":     bytesSent,
	"request_length": requestLength,
	"proxy_protocol_addr": func(st *state) string {
		return st.proxyHeader(func(h *proxyproto.Header) string { return h.SrcAddr })
	},
	"proxy_protocol_port": func(st *state) string {
		return st.proxyHeader(func(h *proxyproto.Header) string { return strconv.Itoa(int(h.SrcPort)) })
	},
	"proxy_protocol_server_addr": func(st *state) string {
		return st.proxyHeader(func(h *proxyproto.Header) string { return h.DstAddr })
	},
	"proxy_protocol_server_port": func(st *state) string {
		return st.proxyHeader(func(h *proxyproto.Header) string { return strconv.Itoa(int(h.DstPort)) })
	},
}

// ofConn prints a number of the connection.
func (st *state) ofConn(f func(*connection) uint64) string {
	if st.conn == nil {
		return ""
	}
	return strconv.FormatUint(f(st.conn), 10)
}

// proxyHeader reads a field of the PROXY header that names addresses.
func (st *state) proxyHeader(f func(*proxyproto.Header) string) string {
	if st.conn == nil {
		return ""
	}
	h := st.conn.header.Load()
	if h == nil || !h.HasAddresses {
		return ""
	}
	return f(h)
}

// proxyTLV is $proxy_protocol_tlv_*.
func proxyTLV(st *state, name string) (string, bool) {
	tlv, err := proxyproto.ParseTLVName(name)
	if err != nil || st.conn == nil {
		return "", false
	}
	h := st.conn.header.Load()
	if h == nil {
		return "", false
	}
	return h.TLV(tlv)
}

// join makes the request one of its connection.
func (st *state) join() {
	if st.conn = connectionOf(st.r); st.conn != nil {
		st.requestNumber = st.conn.requests.Add(1)
		st.sentBefore = st.conn.sent.Load()
	}
}

// limitConnection makes the request the last one of its connection if l says so.
// As in nginx the rules of a server answer without it.
func (st *state) limitConnection(l *Location) {
	if !st.counted() || len(st.r.Header["Upgrade"]) > 0 {
		return
	}
	many := l.KeepaliveRequests > 0 && st.requestNumber >= uint64(l.KeepaliveRequests)
	if many || l.KeepaliveTime > 0 && time.Since(st.conn.start) > time.Duration(l.KeepaliveTime) {
		st.w.Header().Set("Connection", "close")
	}
}

// counted reports whether the bytes of the connection are those of the request:
// over HTTP/2 there are others among them.
func (st *state) counted() bool { return st.conn != nil && st.r.ProtoMajor < 2 }

// bytesSent is $bytes_sent: what has gone to the client for this request.
func bytesSent(st *state) string {
	if !st.counted() {
		return strconv.FormatInt(st.w.size, 10)
	}
	end := int64(0)
	if st.ended && !st.w.hijacked {
		end = st.flush()
	}
	return strconv.FormatInt(st.conn.sent.Load()-st.sentBefore+end, 10)
}

// heldBack is the size up to which net/http waits with a response, to send it
// with its length.
const heldBack = 2048

// flush sends what net/http still holds back of the response, in the form in
// which it would send it in a moment, and returns how many bytes come after it.
func (st *state) flush() int64 {
	h := st.w.Header()
	length, announced := h["Content-Length"], h["Trailer"] != nil
	begun := st.w.flushed || st.w.size > heldBack || st.conn.sent.Load() > st.sentBefore
	bodiless := st.requestMethod == http.MethodHead || st.w.status < 200 || st.w.status == http.StatusNoContent || st.w.status == http.StatusNotModified
	if length == nil && !bodiless && !announced && !begun {
		h.Set("Content-Length", strconv.FormatInt(st.w.size, 10))
	}
	_ = http.NewResponseController(st.w.ResponseWriter).Flush()
	if length == nil && !bodiless && begun && st.r.ProtoAtLeast(1, 1) {
		return int64(len("0\r\n\r\n"))
	}
	return 0
}

// requestLength is $request_length: the bytes of the request with its body.
func requestLength(st *state) string {
	switch {
	case !st.counted():
		return ""
	case st.ended:
		return strconv.FormatInt(st.received, 10)
	}
	return strconv.FormatInt(st.conn.received.Load()-st.conn.before.Load(), 10)
}

// leave ends the request's part of the connection. A body that nobody has read
// does not count, as in nginx.
func (st *state) leave() {
	st.ended = true
	if !st.counted() {
		return
	}
	unread := int64(0)
	if b := st.r.Body; b != nil && !st.w.hijacked && st.r.Header.Get("Expect") == "" {
		unread, _ = io.CopyN(io.Discard, b, 256<<10) // as net/http does in a moment
	}
	now := st.conn.received.Load()
	st.received = now - st.conn.before.Swap(now) - unread
}
