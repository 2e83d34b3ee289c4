// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"net"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// DNS is a name server whose records the test changes while it runs. It
// answers over UDP and TCP on the same port, with what Set says; a name that
// was never set does not exist.
type DNS struct {
	t    testing.TB
	addr string

	mu      sync.Mutex // guards what follows
	records map[string][]dns.RR
	rcodes  map[string]int
	silent  bool
	cut     bool
	noEDNS  bool
	asked   map[string]int
	overTCP int
	hold    chan struct{}
}

// NewDNS starts a name server, and ends it with the test.
func NewDNS(t testing.TB) *DNS {
	t.Helper()
	d := &DNS{t: t, records: map[string][]dns.RR{}, rcodes: map[string]int{}, asked: map[string]int{}}
	var packets net.PacketConn
	var streams net.Listener
	for try := 0; ; try++ { // one port for both
		var err error
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		d.addr = packets.LocalAddr().String()
		if streams, err = net.Listen("tcp", d.addr); err == nil {
			break
		}
		packets.Close()
		if try == 20 {
			t.Fatal(err)
		}
	}
	for _, server := range []*dns.Server{
		{PacketConn: packets, Handler: d.handler(false)},
		{Listener: streams, Handler: d.handler(true)},
	} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.ActivateAndServe()
		}()
		<-started
		t.Cleanup(func() {
			d.Hold(false)
			_ = server.Shutdown()
			<-ended
		})
	}
	return d
}

// Addr is where the server listens.
func (d *DNS) Addr() string { return d.addr }

// Set gives name its records, each as in a zone file without the name, for
// example "60 A 10.0.0.1"; with none, the name exists and has none.
func (d *DNS) Set(name string, records ...string) {
	d.t.Helper()
	list := []dns.RR{}
	for _, text := range records {
		rr, err := dns.NewRR(dns.Fqdn(name) + " " + text)
		if err != nil {
			d.t.Fatal(err)
		}
		list = append(list, rr)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records[dns.CanonicalName(name)] = list
	delete(d.rcodes, dns.CanonicalName(name))
}

// Fail makes questions about name be answered with an error, for example
// SERVFAIL, until the next Set.
func (d *DNS) Fail(name, rcode string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rcodes[dns.CanonicalName(name)] = dns.StringToRcode[rcode]
}

// FailKind is Fail for questions of one kind, for example AAAA. Set does not
// end it.
func (d *DNS) FailKind(name, kind, rcode string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rcodes[kind+" "+dns.CanonicalName(name)] = dns.StringToRcode[rcode]
}

// Silence makes the server answer nothing at all, or answer again.
func (d *DNS) Silence(on bool) { d.set(&d.silent, on) }

// Cut makes all answers over UDP truncated ones without records.
func (d *DNS) Cut(on bool) { d.set(&d.cut, on) }

// RefuseEDNS makes the server answer questions with EDNS with FORMERR.
func (d *DNS) RefuseEDNS(on bool) { d.set(&d.noEDNS, on) }

func (d *DNS) set(flag *bool, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*flag = on
}

// Hold keeps all answers back until it is ended.
func (d *DNS) Hold(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case on && d.hold == nil:
		d.hold = make(chan struct{})
	case !on && d.hold != nil:
		close(d.hold)
		d.hold = nil
	}
}

// Asked is how many questions about name have come, of any kind.
func (d *DNS) Asked(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[dns.CanonicalName(name)]
}

// OverTCP is how many questions have come over TCP.
func (d *DNS) OverTCP() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.overTCP
}

func (d *DNS) handler(tcp bool) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		d.mu.Lock()
		answer := d.answerLocked(q, tcp)
		hold := d.hold
		d.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if answer != nil {
			_ = w.WriteMsg(answer)
		}
	}
}

func (d *DNS) answerLocked(q *dns.Msg, tcp bool) *dns.Msg {
	name := dns.CanonicalName(q.Question[0].Name)
	d.asked[name]++
	if tcp {
		d.overTCP++
	}
	m := new(dns.Msg)
	m.SetReply(q)
	rcode, fails := d.rcodes[name]
	if !fails {
		rcode, fails = d.rcodes[dns.TypeToString[q.Question[0].Qtype]+" "+name]
	}
	switch {
	case d.silent:
		return nil
	case d.noEDNS && q.IsEdns0() != nil:
		return m.SetRcode(q, dns.RcodeFormatError)
	case fails:
		return m.SetRcode(q, rcode)
	case d.cut && !tcp:
		m.Truncated = true
		return m
	}
	for range 10 { // along the aliases
		list, exists := d.records[name]
		if !exists {
			return m.SetRcode(q, dns.RcodeNameError)
		}
		alias := ""
		for _, rr := range list {
			if cname, ok := rr.(*dns.CNAME); ok {
				alias = dns.CanonicalName(cname.Target)
				m.Answer = append(m.Answer, rr)
			} else if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if alias == "" {
			break
		}
		name = alias
	}
	if size := dns.MinMsgSize; !tcp {
		if opt := q.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		m.Truncate(size)
	}
	return m
}
