// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package l4stream

import (
	"errors"
	"net"
	"time"

	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/udpbatch"
)

// udpGoroutine reads a listening socket on a goroutine.
type udpGoroutine struct{ conn *net.UDPConn }

func (u *udpSocket) read(conn *net.UDPConn) (udpReader, error) {
	go func() {
		for {
			err := u.batch.Serve(func(packets []udpbatch.Packet) bool { u.received(packets, time.Now()); return true })
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				u.failed(err)
			}
		}
	}()
	return udpGoroutine{conn}, nil
}

func (udpGoroutine) use(*servers) {}

func (g udpGoroutine) close() error { return g.conn.Close() }

// udpLoop does not exist here: every session has its goroutine.
type udpLoop struct{}

func (*udpSession) join() {}

func (*udpSession) enter() {}

func (*udpSession) leave() {}
