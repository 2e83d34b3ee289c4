// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package upstreamkeepalive

import (
	"os"
	"syscall"
	"time"
)

// silent reports that the server has neither sent anything nor closed c. There
// is no portable way to look without reading, but c is about to be used or
// thrown away: a read that is given no time does it.
func (c *conn) silent() bool {
	c.rd = time.Time{}
	_ = c.raw.SetReadDeadline(time.Now().Add(100 * time.Microsecond))
	var b [1]byte
	n, err := c.raw.Read(b[:])
	return n == 0 && os.IsTimeout(err)
}

// prober cannot look at a connection that somebody may take meanwhile, so here
// a closed connection is noticed when it is about to be reused, or expires.
type prober struct{}

func (*prober) noisy([]watched, func(int)) {}

// asker: nothing is asked without net.Conn.
type asker struct{ socket syscall.RawConn }

func (c *conn) asks() bool { return false }

func (c *conn) ask([]byte, bool) (int, error) { return 0, nil }

func (*asker) take() (int, bool, error) { return 0, false, nil }
