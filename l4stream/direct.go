// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

// On Linux, sessions of servers whose handlers never wait have no goroutine: an
// event loop accepts the connection, calls the handlers, connects the server and
// moves the bytes. Where a session does have to wait (a server cannot be
// connected, a place in a queue) it gets a connection and a goroutine like all
// others; and others lose theirs when bytes need only be moved.

// mayWait reports whether a handler may keep a goroutine waiting; that of
// another module may.
func mayWait(h Handler) bool {
	switch h := h.(type) {
	case *RealIP, *Access, *LimitConn, *Set, *Map, *Geo, *SplitClients, *AccessLog:
		return false
	case *ProxyPass:
		return h.SSL != nil || h.ConnectHedge > 0 || h.ProxyProtocol != "" || h.Bind != "" || h.UploadRate != "" || h.DownloadRate != "" || h.target.fixed == nil
	}
	return true
}

// udpMayWait reports whether a handler may keep the datagrams of other sessions
// waiting.
func udpMayWait(h Handler) bool {
	switch h := h.(type) {
	case *ProxyProtocol, *Return:
		return false
	case *ProxyPass:
		return h.target.fixed == nil
	}
	return mayWait(h)
}
