// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// client asks name servers. Answers that do not fit into a datagram are asked
// for again over TCP.
type client struct {
	servers []string // host:port; empty: the system's resolver
	ipv6    bool
	timeout time.Duration
	next    atomic.Uint32 // the server to begin with
}

// answer is what a name has.
type answer struct {
	addrs []netip.Addr
	// valid is how long the answer holds: the smallest TTL of the records that
	// led to the addresses, negativeTTL if there are none.
	valid time.Duration
}

// negativeTTL is how long it holds that a name does not exist. systemTTL is the
// same for all answers of the system's resolver, which tells no TTL.
const (
	negativeTTL = 10 * time.Second
	systemTTL   = 10 * time.Second
)

// errNoAnswer is wrapped by errors that say nothing about the name.
var errNoAnswer = errors.New("no usable answer")

// lookup returns the addresses of name, in the order of the answer. An answer
// without addresses means that the name does not exist or has none; an error,
// that it is not known.
func (c *client) lookup(ctx context.Context, name string) (answer, error) {
	if len(c.servers) == 0 {
		return c.lookupSystem(ctx, name)
	}
	kinds := []uint16{dns.TypeA}
	if c.ipv6 {
		kinds = append(kinds, dns.TypeAAAA)
	}
	type result struct {
		msg *dns.Msg
		err error
	}
	results := make([]chan result, len(kinds))
	for i, kind := range kinds {
		results[i] = make(chan result, 1)
		go func() {
			msg, err := c.query(ctx, name, kind)
			results[i] <- result{msg, err}
		}()
	}
	out := answer{valid: -1}
	var failed error
	for i := range kinds { // both are awaited
		if r := <-results[i]; r.err != nil {
			failed = r.err
		} else {
			out.add(r.msg, name)
		}
	}
	if failed != nil {
		return answer{}, failed
	}
	if len(out.addrs) == 0 {
		out.valid = negativeTTL
	}
	return out, nil
}

// add takes the addresses of one message, along its chain of aliases.
func (a *answer) add(msg *dns.Msg, name string) {
	owners := aliases(msg, name)
	for _, rr := range msg.Answer {
		if !owners[dns.CanonicalName(rr.Header().Name)] {
			continue
		}
		var ip net.IP
		switch v := rr.(type) {
		case *dns.A:
			ip = v.A
		case *dns.AAAA:
			ip = v.AAAA
		case *dns.CNAME:
			a.limit(rr.Header().Ttl)
			continue
		}
		if addr, ok := netip.AddrFromSlice(ip); ok {
			a.addrs = append(a.addrs, addr.Unmap())
			a.limit(rr.Header().Ttl)
		}
	}
}

// aliases returns name and what it stands for, by the aliases in msg, which may
// come in any order. Records of other names are nobody's business.
func aliases(msg *dns.Msg, name string) map[string]bool {
	targets := map[string]string{}
	for _, rr := range msg.Answer {
		if cname, ok := rr.(*dns.CNAME); ok {
			targets[dns.CanonicalName(rr.Header().Name)] = dns.CanonicalName(cname.Target)
		}
	}
	owners := map[string]bool{}
	for owner, ok := dns.CanonicalName(name), true; ok && !owners[owner]; owner, ok = targets[owner] {
		owners[owner] = true
	}
	return owners
}

func (a *answer) limit(ttl uint32) {
	d := time.Duration(ttl) * time.Second
	if a.valid < 0 || d < a.valid {
		a.valid = d
	}
}

// query asks one question, of one name server after the other until one has an
// answer. That a name does not exist is an answer without records.
func (c *client) query(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	end, _ := ctx.Deadline()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	first := int(c.next.Add(1) % uint32(len(c.servers)))
	var failed error
	for i := range c.servers {
		server := c.servers[(first+i)%len(c.servers)]
		share := time.Until(end) / time.Duration(len(c.servers)-i)
		msg, err := exchange(ctx, m, server, share)
		switch {
		case err != nil:
		case msg.Rcode == dns.RcodeSuccess:
			return msg, nil
		case msg.Rcode == dns.RcodeNameError:
			msg.Answer = nil
			return msg, nil
		default:
			err = fmt.Errorf("it answers %s", dns.RcodeToString[msg.Rcode])
		}
		failed = fmt.Errorf("name server %s: %w", server, plain(err))
	}
	return nil, fmt.Errorf("%s of %s: %w: %w", dns.TypeToString[kind], strings.TrimSuffix(name, "."), errNoAnswer, failed)
}

// plain says in words what the network says in types.
func plain(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return errors.New("timed out")
	}
	return err
}

const (
	// udpTries is how often a question is sent to one server: datagrams get lost.
	udpTries = 2
	// shortest is the least time that one try waits.
	shortest = 50 * time.Millisecond
	// udpSize is the largest answer we ask for in a datagram: what every network
	// carries in one piece.
	udpSize = 1232
)

// exchange asks one server: with EDNS, for larger answers; without it if the
// server does not know it; over TCP if the answer was cut.
func exchange(ctx context.Context, m *dns.Msg, server string, timeout time.Duration) (*dns.Msg, error) {
	q := m.Copy()
	q.SetEdns0(udpSize, false)
	msg, err := overUDP(ctx, q, server, timeout/udpTries)
	if err == nil && (msg.Rcode == dns.RcodeFormatError || msg.Rcode == dns.RcodeNotImplemented) {
		msg, err = overUDP(ctx, m, server, timeout/udpTries)
	}
	if err != nil || !msg.Truncated {
		return msg, err
	}
	return try(ctx, &dns.Client{Net: "tcp", Timeout: max(timeout, shortest)}, q, server)
}

func overUDP(ctx context.Context, m *dns.Msg, server string, timeout time.Duration) (msg *dns.Msg, err error) {
	udp := &dns.Client{Net: "udp", Timeout: max(timeout, shortest), UDPSize: udpSize}
	for range udpTries {
		q := m.Copy()
		q.Id = uint16(rand.Uint32())
		if msg, err = try(ctx, udp, q, server); err == nil || ctx.Err() != nil {
			break
		}
	}
	return msg, err
}

// try asks once. The library minds the deadline of ctx only, so that its end
// closes the connection here.
func try(ctx context.Context, c *dns.Client, q *dns.Msg, server string) (*dns.Msg, error) {
	conn, err := c.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	msg, _, err := c.ExchangeWithConnContext(ctx, q, conn)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	return msg, matches(msg, q)
}

var errMismatch = errors.New("it answers another question")

// matches checks that msg is an answer to the question q.
func matches(msg, q *dns.Msg) error {
	if !msg.Response || len(msg.Question) > 1 || len(msg.Question) == 0 && msg.Rcode == dns.RcodeSuccess {
		return errMismatch
	}
	for _, answered := range msg.Question {
		asked := q.Question[0]
		if answered.Qtype != asked.Qtype || answered.Qclass != asked.Qclass ||
			dns.CanonicalName(answered.Name) != dns.CanonicalName(asked.Name) {
			return errMismatch
		}
	}
	return nil
}
