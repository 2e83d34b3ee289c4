// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// Datagram is one datagram as a UDP backend received it.
type Datagram struct {
	From *net.UDPAddr
	Data []byte
}

// UDP is a UDP backend that remembers every datagram and answers by script.
type UDP struct {
	t      testing.TB
	answer func(Datagram) [][]byte
	wg     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	conn     *net.UDPConn
	addr     *net.UDPAddr
	received []Datagram
}

// NewUDP starts a UDP backend on 127.0.0.1. Each datagram is answered with the
// datagrams that answer returns; a nil answer gives the port, a space and the
// datagram in upper case.
func NewUDP(t testing.TB, answer func(Datagram) [][]byte) *UDP {
	t.Helper()
	u := &UDP{t: t, answer: answer}
	if answer == nil {
		u.answer = func(d Datagram) [][]byte {
			return [][]byte{fmt.Appendf(nil, "%d %s", u.Port(), strings.ToUpper(string(d.Data)))}
		}
	}
	u.addr = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: FreeUDPPort(t)}
	u.Restart()
	t.Cleanup(u.Stop)
	return u
}

// Restart listens again, on the same port.
func (u *UDP) Restart() {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	var conn *net.UDPConn
	err := whileInUse(func() (err error) {
		conn, err = net.ListenUDP("udp4", u.addr)
		return err
	})
	if err != nil {
		u.t.Fatalf("listening: %v", err)
	}
	_ = conn.SetReadBuffer(4 << 20)
	u.conn = conn
	u.wg.Go(func() { u.serve(conn) })
}

func (u *UDP) serve(conn *net.UDPConn) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		d := Datagram{From: from, Data: append([]byte(nil), buf[:n]...)}
		u.mu.Lock()
		u.received = append(u.received, d)
		u.mu.Unlock()
		for _, a := range u.answer(d) {
			_, _ = conn.WriteToUDP(a, from)
		}
	}
}

// Stop closes the socket: the port is refused from here on.
func (u *UDP) Stop() {
	u.mu.Lock()
	if u.conn != nil {
		u.conn.Close()
		u.conn = nil
	}
	u.mu.Unlock()
	u.wg.Wait()
}

// Addr is the address it listens or listened on.
func (u *UDP) Addr() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.addr.String()
}

// Port is the port of Addr.
func (u *UDP) Port() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.addr.Port
}

// Received are all datagrams so far.
func (u *UDP) Received() []Datagram {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Datagram(nil), u.received...)
}
