// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import "net"

// streamServers are the backends of the stream modes, in this process: a proxy's
// CPU time is read from its own process, so theirs does not matter.
type streamServers struct {
	listeners []net.Listener
	udp       *net.UDPConn
}

// chunk is what bulk loads read and write at once.
const chunk = 256 << 10

func startStreamServers(t *targets) (s *streamServers, err error) {
	s = new(streamServers)
	listen := func(handle func(net.Conn)) string {
		if err != nil {
			return ""
		}
		var ln net.Listener
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return ""
		}
		s.listeners = append(s.listeners, ln)
		go acceptAll(ln, handle)
		return ln.Addr().String()
	}
	for range 4 {
		t.Echo = append(t.Echo, listen(echo))
	}
	t.Source = listen(source)
	t.Sink = listen(sink)
	if err == nil {
		s.udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	}
	if err != nil {
		s.close()
		return nil, err
	}
	_ = s.udp.SetReadBuffer(4 << 20)
	t.UDP = s.udp.LocalAddr().String()
	go echoDatagrams(s.udp)
	return s, nil
}

func (s *streamServers) close() {
	for _, ln := range s.listeners {
		ln.Close()
	}
	if s.udp != nil {
		s.udp.Close()
	}
}

func acceptAll(ln net.Listener, handle func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

// echo sends everything back. Its buffer is small, for 10,000 of them.
func echo(c net.Conn) {
	buf := make([]byte, 256)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// source sends as long as somebody reads.
func source(c net.Conn) {
	buf := make([]byte, chunk)
	for {
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

// sink reads everything. (Not io.Discard, which would read in small pieces.)
func sink(c net.Conn) {
	buf := make([]byte, chunk)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

func echoDatagrams(c *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteToUDPAddrPort(buf[:n], from)
	}
}
