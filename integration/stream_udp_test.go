// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/miekg/dns"
)

func addrPort(t *testing.T, addr string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serveUDP starts Caddy with a UDP server that has these lines; the listener's
// address comes with it.
func serveUDP(t *testing.T, groups string, lines ...string) (*proxy, string) {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t))
	return serveStream(t, groups, "server udp/"+addr+" {\n"+strings.Join(lines, "\n")+"\n}\n"), addr
}

// exchange sends a datagram and reads the answer.
func (s *session) exchange(data []byte) []byte {
	s.t.Helper()
	_ = s.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := s.Write(data); err != nil {
		s.t.Fatal(err)
	}
	return s.datagram()
}

func (s *session) datagram() []byte {
	s.t.Helper()
	_ = s.SetDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 1<<16)
	n, err := s.Read(buf)
	if err != nil {
		s.t.Fatal(err)
	}
	return buf[:n]
}

func TestStreamDNSOverUDPAndTCP(t *testing.T) {
	zone := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		for i := range 100 { // too much for a datagram of 512 bytes
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
				A:   net.IPv4(192, 0, 2, byte(i)),
			})
		}
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(dns.MinMsgSize)
		}
		_ = w.WriteMsg(m)
	})
	var ln net.Listener
	var pc net.PacketConn
	testnet.Eventually(t, 10*time.Second, "a number that is free as a TCP and as a UDP port", func() (ok bool) {
		var err error
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if pc, err = net.ListenPacket("udp", ln.Addr().String()); err != nil {
			ln.Close()
		}
		return err == nil
	})
	for _, s := range []*dns.Server{{Listener: ln, Handler: zone}, {PacketConn: pc, Handler: zone}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	udp := fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t))
	p := serveStream(t, group("dns", ln.Addr().String()), `
		server `+front("tcp")+` {
			proxy_pass dns
		}
		server udp/`+udp+` {
			proxy_pass dns {
				proxy_responses 1
			}
			access_log
		}`)
	q := new(dns.Msg).SetQuestion("example.org.", dns.TypeA)
	in, _, err := (&dns.Client{Net: "udp", Timeout: 10 * time.Second}).Exchange(q, udp)
	if err != nil {
		t.Fatal(err)
	}
	if !in.Truncated || len(in.Answer) == 0 {
		t.Errorf("over UDP: truncated %t, %d answers", in.Truncated, len(in.Answer))
	}
	in, _, err = (&dns.Client{Net: "tcp", Timeout: 10 * time.Second}).Exchange(q, p.Addr("tcp"))
	if err != nil {
		t.Fatal(err)
	}
	if in.Truncated || len(in.Answer) != 100 {
		t.Errorf("over TCP: truncated %t, %d answers, want 100", in.Truncated, len(in.Answer))
	}
	p.WaitLog(t, "session", map[string]any{"protocol": "UDP", "status": 200, "upstream_addr": ln.Addr().String()})
	p.waitConns(0) // the session over UDP has ended with its answer
}

func TestStreamDatagramsOfEverySizePassWhole(t *testing.T) {
	b := testnet.NewUDP(t, func(d testnet.Datagram) [][]byte { return [][]byte{d.Data} })
	_, addr := serveUDP(t, "", "proxy_pass "+b.Addr())
	s := open(t, "udp", addr)
	for _, n := range []int{0, 1, 1472, 1473, 9000, 65506, 65507} {
		data := make([]byte, n)
		_, _ = rand.Read(data)
		if got := s.exchange(data); !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d others", n, len(got))
		}
	}
	if n := len(b.Received()); n != 7 {
		t.Errorf("the backend got %d datagrams, want 7", n)
	}
}

// Case 43.
func TestStreamUDPFloodCostsNothingThatStays(t *testing.T) {
	b := testnet.NewUDP(t, nil)
	p, addr := serveUDP(t, "", "max_udp_sessions 300", "proxy_pass "+b.Addr()+" {\ntimeout 500ms\n}")
	open(t, "udp", addr).exchange([]byte("warm"))
	p.waitConns(0)
	base := p.Usage()
	for i := range 10000 {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, byte(1+i%3), 1)}, net.UDPAddrFromAddrPort(addrPort(t, addr)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("x"))
		c.Close()
	}
	p.WaitLog(t, "too many UDP sessions: datagram dropped", map[string]any{"max_udp_sessions": 300})
	if n := len(p.Logs("too many UDP sessions: datagram dropped")); n > 30 {
		t.Errorf("the limit was logged %d times", n)
	}
	p.quiet(base)
	if got := string(open(t, "udp", addr).exchange([]byte("again"))); got != fmt.Sprint(b.Port(), " AGAIN") {
		t.Errorf("afterwards the answer is %q", got)
	}
}

// A session that gets no more datagrams of its client still counts.
func TestStreamUDPSessionsThatAwaitAnswersCount(t *testing.T) {
	b := testnet.NewUDP(t, func(testnet.Datagram) [][]byte { return nil })
	p, addr := serveUDP(t, "", "max_udp_sessions 10", "proxy_pass "+b.Addr()+" {\nproxy_requests 1\n}")
	s := open(t, "udp", addr)
	for range 50 {
		_, _ = s.Write([]byte("x"))
	}
	p.WaitLog(t, "too many UDP sessions: datagram dropped", nil)
	testnet.Eventually(t, 5*time.Second, "ten datagrams", func() bool { return len(b.Received()) == 10 })
	p.waitConns(10)
}

// Case 44.
func TestStreamOneWayFlowsAreSpread(t *testing.T) {
	none := func(testnet.Datagram) [][]byte { return nil }
	a, b := testnet.NewUDP(t, none), testnet.NewUDP(t, none)
	p, addr := serveUDP(t, group("syslog", a.Addr(), b.Addr()), "proxy_pass syslog {\nproxy_requests 1\nproxy_responses 0\n}")
	base := p.Usage()
	s := open(t, "udp", addr)
	for i := range 400 {
		_, _ = fmt.Fprintf(s, "message %d", i)
		if i%20 == 19 { // no faster than the backends read
			testnet.Eventually(t, 10*time.Second, "what was sent", func() bool { return len(a.Received())+len(b.Received()) == i+1 })
		}
	}
	if x, y := len(a.Received()), len(b.Received()); x != 200 || y != 200 {
		t.Errorf("the servers got %d and %d datagrams, want 200 each", x, y)
	}
	p.quiet(base)
}

// Cases 45 and 46.
func TestStreamUDPSessionsKeepTheirUpstreamPort(t *testing.T) {
	b := testnet.NewUDP(t, nil)
	p, addr := serveUDP(t, "", "proxy_pass "+b.Addr()+" {\ntimeout 24h\n}", "access_log")
	s := open(t, "udp", addr)
	for range 5 {
		s.exchange([]byte("x"))
		time.Sleep(200 * time.Millisecond)
	}
	ports := map[int]bool{}
	for _, d := range b.Received() {
		ports[d.From.Port] = true
	}
	if len(ports) != 1 {
		t.Errorf("the backend saw %d ports of one client, want 1", len(ports))
	}
	p.MustReload(streamConfig("", "server udp/"+addr+" {\naccess_log\nproxy_pass "+b.Addr()+" {\nproxy_responses 1\n}\n}\n"), nil)
	s2 := open(t, "udp", addr)
	s2.exchange([]byte("x"))
	if l := p.ended(s2); !l.Has(map[string]any{"status": 200}) {
		t.Errorf("a session whose answers have come: %v", l.Fields)
	}
	for _, l := range p.Lines() {
		if l.Fields["level"] == "error" {
			t.Errorf("an error was logged: %s", l.Text)
		}
	}
}

func TestStreamUDPRefusedServerIsLeft(t *testing.T) {
	dead, b := fmt.Sprintf("127.0.0.1:%d", testnet.FreeUDPPort(t)), testnet.NewUDP(t, nil)
	p, addr := serveUDP(t, group("g", dead, b.Addr()), "proxy_pass g")
	s := open(t, "udp", addr)
	_, _ = s.Write([]byte("lost"))
	testnet.Eventually(t, 10*time.Second, "the failure", func() bool { return p.servers("g")[0].State.Failures == 1 })
	for range 10 {
		if got := string(s.exchange([]byte("x"))); got != fmt.Sprint(b.Port(), " X") {
			t.Errorf("the answer is %q", got)
		}
	}
	if n := p.servers("g")[0].State.Picks; n != 1 {
		t.Errorf("the refusing server was picked %d times, want 1", n)
	}
}

// One flow whose server floods, or whose rate is low, delays no other.
func TestStreamOneSlowFlowBlocksNoOther(t *testing.T) {
	b := testnet.NewUDP(t, func(d testnet.Datagram) [][]byte {
		if string(d.Data) == "flood" {
			return slices.Repeat([][]byte{bytes.Repeat([]byte("x"), 1000)}, 500)
		}
		return [][]byte{d.Data}
	})
	_, addr := serveUDP(t, "", "proxy_pass "+b.Addr()+" {\ndownload_rate 2000\nupload_rate 1m\n}")
	slow := open(t, "udp", addr)
	_, _ = slow.Write([]byte("flood"))
	began := time.Now()
	for range 50 {
		s := open(t, "udp", addr)
		if got := s.exchange([]byte("hi")); string(got) != "hi" {
			t.Fatalf("the answer is %q", got)
		}
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("50 flows beside a slow one took %v", d)
	}
}
