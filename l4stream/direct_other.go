// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package l4stream

import (
	"io"
	"net"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/l4stream/internal/splice"
)

// direct does not exist here: every session has its goroutines.
type direct struct{}

func (*direct) close() {}

func (*direct) proxy(*ProxyPass, *peer.Group) error { return nil }

func listenDirect(*socket, address) (io.Closer, error) { return nil, nil }

func (*ProxyPass) runAway(*Session, net.Conn, *try, splice.Config) bool { return false }
