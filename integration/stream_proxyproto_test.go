// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// Case 47.
func TestStreamPROXYHeadersAreRequiredAndBelievedByTrust(t *testing.T) {
	b := testnet.NewLines(t, "")
	p := serveStream(t, "", `
		server `+front("require")+` {
			proxy_protocol require
			proxy_pass `+b.Addr()+`
			access_log
		}
		server `+front("untrusted")+` {
			proxy_protocol {
				trusted 192.0.2.0/24
			}
			realip 0.0.0.0/0
			proxy_pass `+b.Addr()+`
			access_log
		}
		server `+front("optional")+` {
			proxy_protocol
			realip 127.0.0.1
			return "{stream.remote_addr} {stream.remote_port} {stream.realip_remote_addr} {stream.proxy_protocol_server_addr}"
		}
		server `+front("noRealip")+` {
			proxy_protocol require
			return "{stream.remote_addr} {stream.proxy_protocol_addr}"
		}`)
	header := "PROXY TCP4 198.51.100.7 192.0.2.9 4567 80\r\n"
	for _, c := range []struct{ front, sent string }{
		{"require", "hello, I have no header\n"}, {"require", "PROXY TCP4 no address\r\n"}, {"untrusted", header + "hello\n"},
	} {
		s := p.tcp(c.front)
		s.say(c.sent)
		if got := s.rest(); got != "" {
			t.Errorf("%s: %q was answered with %q", c.front, c.sent, got)
		}
		if l := p.ended(s); !l.Has(map[string]any{"status": 400, "upstream_addr": ""}) {
			t.Errorf("%s: %v", c.front, l.Fields)
		}
	}
	if n := len(b.Received()); n != 0 {
		t.Errorf("the backend got %d lines", n)
	}
	for front, want := range map[string]string{
		"optional": "198.51.100.7 4567 127.0.0.1 192.0.2.9", "noRealip": "127.0.0.1 198.51.100.7",
	} {
		s := p.tcp(front)
		s.say(header)
		if got := s.rest(); got != want {
			t.Errorf("%s: %q, want %q", front, got, want)
		}
	}
	s := p.tcp("optional")
	s.say("no header\n")
	if got, want := s.rest(), "127.0.0.1 "+s.port()+" 127.0.0.1 "; got != want {
		t.Errorf("without a header: %q, want %q", got, want)
	}
}

// Case 48.
func TestStreamPROXYHeadersOverUDP(t *testing.T) {
	b := testnet.NewUDP(t, func(d testnet.Datagram) [][]byte { return [][]byte{d.Data} })
	udp := func() string { return fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t)) }
	inner, first, every, bad := udp(), udp(), udp(), udp()
	p := serveStream(t, "", `
		server udp/`+inner+` {
			proxy_protocol require
			realip 127.0.0.1
			proxy_pass `+b.Addr()+`
			access_log
		}
		server udp/`+first+` {
			proxy_pass `+inner+` {
				proxy_protocol v2
			}
		}
		server udp/`+every+` {
			proxy_pass `+inner+` {
				proxy_protocol v2 every_datagram
				timeout 1s
			}
		}
		server udp/`+bad+` {
			proxy_pass `+inner+` {
				proxy_protocol v1
			}
		}`)
	for _, addr := range []string{first, every} {
		s := open(t, "udp", addr)
		for i := range 3 {
			want := fmt.Sprintf("datagram %d", i)
			if got := string(s.exchange([]byte(want))); got != want {
				t.Errorf("the answer is %q, want %q: the header is taken off", got, want)
			}
		}
	}
	_, _ = open(t, "udp", bad).Write([]byte("v1"))
	p.WaitLog(t, "session", map[string]any{"protocol": "UDP", "status": 400})
	_, _ = open(t, "udp", inner).Write([]byte("no header"))
	testnet.Eventually(t, 10*time.Second, "two rejected sessions", func() bool { return len(p.Logs("session")) >= 2 })
	for _, d := range b.Received() {
		if !strings.HasPrefix(string(d.Data), "datagram ") {
			t.Errorf("the backend got %q", d.Data)
		}
	}
}

func TestStreamPROXYChainKeepsTheClient(t *testing.T) {
	b := testnet.NewLines(t, "")
	p := serveStream(t, "", `
		server `+front("one")+` {
			proxy_pass `+front("two")+` {
				proxy_protocol v1
			}
		}
		server `+front("two")+` {
			proxy_protocol require
			realip 127.0.0.0/8
			proxy_pass `+front("three")+` {
				proxy_protocol v2
			}
		}
		server `+front("three")+` {
			proxy_protocol require
			realip 127.0.0.0/8
			deny 192.0.2.0/24
			proxy_pass `+b.Addr()+`
			access_log {
				field hop three
			}
		}`)
	s := p.tcp("one")
	if got, want := s.ask("hello"), fmt.Sprintf("%d HELLO", b.Port()); got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	s.Close()
	if l := p.ended(s); !l.Has(map[string]any{"remote_addr": "127.0.0.1", "hop": "three"}) {
		t.Errorf("the last hop logs %v", l.Fields)
	}
	denied := p.tcp("two")
	denied.say("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nhello\n")
	if got := denied.rest(); got != "" {
		t.Errorf("a client that is denied got %q", got)
	}
}
