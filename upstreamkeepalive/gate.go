// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"net"
	"os"
)

// gate stands between a TLS connection and its socket. It follows the record
// framing, because TLS hides what it has received but not yet delivered: a
// connection goes back to the cache only if nothing is hidden there.
type gate struct {
	net.Conn
	dry bool // reads do not reach the socket

	header [5]byte
	have   int // bytes of header received
	rest   int // bytes of the current record's body still to come
}

func (g *gate) Read(p []byte) (int, error) {
	if g.dry {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := g.Conn.Read(p)
	g.follow(p[:n])
	return n, err
}

func (g *gate) follow(p []byte) {
	for len(p) > 0 {
		if g.rest > 0 {
			n := min(g.rest, len(p))
			g.rest -= n
			p = p[n:]
			continue
		}
		n := copy(g.header[g.have:], p)
		g.have += n
		p = p[n:]
		if g.have == len(g.header) {
			g.rest = int(g.header[3])<<8 | int(g.header[4])
			g.have = 0
		}
	}
}

// quiet reports that neither a part of a record nor data nor an alert waits
// inside the TLS connection c. Post-handshake messages are consumed.
func (g *gate) quiet(c net.Conn) bool {
	if g.rest > 0 || g.have > 0 {
		return false
	}
	g.dry = true
	var b [1]byte
	n, err := c.Read(b[:])
	g.dry = false
	return n == 0 && os.IsTimeout(err)
}
