// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package upstreamkeepalive is the HTTP/1.1 client of caddy-upstream: the module
// http.reverse_proxy.transport.upstream_keepalive, a transport for Caddy's
// reverse_proxy that keeps connections to servers as nginx's keepalive does.
//
//	reverse_proxy 10.0.0.1:80 {
//	    transport upstream_keepalive {
//	        keepalive 64
//	        read_timeout 10s
//	    }
//	}
//
// Under next_upstream, and so with proxy_pass, it is the default transport. The
// README has all options.
//
// # The cache
//
// Idle connections are in one list, most recently used first. A request takes
// the first one in it that goes to exactly its server's network address, with
// exactly its way of connecting: TLS or not, server name, trusted roots, client
// certificate, local address. If the list is full, the one that has been idle
// for longest is closed. The list is the handler's own; in an upstream group it
// is the group's, its limit is for all handlers of the group, and "local" only
// says that nobody else may take what a handler has put there.
//
// A connection is kept after a response if it was complete and said HTTP/1.1
// without "Connection: close"; nothing came beyond it; the whole request was
// sent; and keepalive_requests and keepalive_time allow. nginx's rules are in
// ngx_http_upstream_keepalive_module; recorded cases are in testdata.
//
// Before reuse a connection is looked at. Bytes that nobody asked for, or the
// end of the stream, mean that it is closed and another is taken; over TLS what
// the TLS layer has received but not delivered counts as well. A janitor looks
// at all idle connections once a second, with one system call. It runs while
// there is something idle.
//
// # The round trip
//
// It runs in the caller's goroutine. Without TLS, a request that is one piece is
// sent, and its answer waited for, in one operation on the socket; if it has no
// body, so is the look before it. A body of up to 16 KiB of known length is
// sent together with the head. For a larger one, or one of unknown length, a
// second goroutine sends while the first reads, so that an early answer is
// delivered at once; if it is over before the body has been sent, the
// connection is closed.
//
// If a reused connection breaks before the first byte of a response, the server
// closed it while the request was on its way. A request that may be repeated is
// then sent once more over a new connection to the same server: any method but
// POST, LOCK and PATCH, with no body, a small one, or one that can be rewound.
// Of any other the caller learns exchange.Error with Stale set.
//
// # Safety
//
// Requests are checked before a byte is written: a method that is no token, a
// target with spaces or control characters, a header that would be two, and
// CONNECT are refused. Content-Length, Transfer-Encoding, Trailer, Connection
// and Host are never taken from the header map. Responses are parsed strictly:
// folded lines, white space before a colon, conflicting lengths, codings other
// than chunked, bare carriage returns and headers or trailers larger than
// response_header_limit are refused as an invalid header. A truncated body is
// io.ErrUnexpectedEOF, never a clean end. Chunks in HTTP/1.0 are decoded, as nginx
// does, and like every HTTP/1.0 connection that one is closed (RFC 9112, 6.1).
//
// # Ends
//
// Exchange implements the contract of package exchange; RoundTrip is Exchange
// for those who do not know it. exchange.Attempt.Abort ends everything at once:
// dialling, handshake, sending, waiting, and reading, at which the connection is
// closed. Timeouts are never early; above 10 s or so they may be up to a second
// late, so that busy connections need not set their timers each time.
//
// # Limits
//
// HTTP/2 and HTTP/3 belong to Caddy's own transport. There is no forward proxy
// and no decompression. Whether a TCP peer that vanished without a word is still
// there is not probed: keepalive_timeout and read_timeout find out. On systems
// that are not Unix, idle connections are looked at when they are about to be
// reused, and not by the janitor. A connection that was made with a client
// certificate since renewed is used until it is closed.
package upstreamkeepalive
