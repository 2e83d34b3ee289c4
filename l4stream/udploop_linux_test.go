// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"net"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// udpServers are those of one configuration, which answers with name. If it
// waits, its handler may keep datagrams waiting.
func udpServers(name string, waiting bool) *servers {
	s := &Server{logger: zap.NewNop(), udpWaits: waiting}
	s.sessions.open = map[*Session]struct{}{}
	s.phases[Content] = []Handler{handle(func(s *Session) error { return s.udp.reply([]byte(name)) })}
	return &servers{list: []*Server{s}}
}

func TestAUDPSocketMovesToALoopOfItsOwnWhileHandlersMayWait(t *testing.T) {
	na, err := caddy.ParseNetworkAddress("udp/127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := udpServers("first", false)
	s, err := listen(address{na}, first)
	if err != nil {
		t.Fatal(err)
	}
	reader := s.udp.reader.(*udpOnLoop)
	shared := reader.loop
	client, err := net.Dial("udp", s.udp.local.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ask := func(want string, own bool) {
		t.Helper()
		if reader.own != own || (reader.loop == shared) == own {
			t.Errorf("%s: on a loop of its own: %v, want %v", want, reader.own, own)
		}
		_, _ = client.Write([]byte("who?"))
		b := make([]byte, 20)
		if n, err := client.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("answer %q, %v, want %s", b[:n], err, want)
		}
	}
	_ = client.SetDeadline(time.Now().Add(patience))
	second := udpServers("second", true)
	s.push(first)
	ask("first", false)
	s.push(second)
	ask("second", true)
	s.drop(second) // a reload that has failed
	shared = reader.loop
	ask("first", false)
	if err := s.Destruct(); err != nil {
		t.Error(err)
	}
	again, err := net.ListenPacket("udp", s.udp.local.Addr.String())
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	again.Close()
}
