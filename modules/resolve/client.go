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
	"slices"
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
	// valid is how long the answer holds: the smallest TTL, negativeTTL for an
	// empty one.
	valid time.Duration
}

// negativeTTL is how long it holds that a name does not exist. systemTTL is the
// same for all answers of the system's resolver, which tells no TTL.
const (
	negativeTTL = 10 * time.Second
	systemTTL   = 10 * time.Second
)

// errTemporary is wrapped by errors that say nothing about the name.
var errTemporary = errors.New("no usable answer")

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
		r := <-results[i]
		if r.err != nil {
			failed = r.err
			continue
		}
		out.add(r.msg, name)
	}
	if failed != nil {
		return answer{}, failed
	}
	if out.valid < 0 {
		out.valid = negativeTTL
	}
	return out, nil
}

// add takes the addresses of one answer, along its chain of aliases.
func (a *answer) add(msg *dns.Msg, name string) {
	owner := dns.CanonicalName(name)
	chain := map[string]bool{owner: true}
	for range msg.Answer { // aliases may stand in any order
		for _, rr := range msg.Answer {
			if cname, ok := rr.(*dns.CNAME); ok && chain[dns.CanonicalName(rr.Header().Name)] {
				chain[dns.CanonicalName(cname.Target)] = true
			}
		}
	}
	for _, rr := range msg.Answer {
		if !chain[dns.CanonicalName(rr.Header().Name)] {
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
		default:
			continue
		}
		if addr, ok := netip.AddrFromSlice(ip); ok {
			a.addrs = append(a.addrs, addr.Unmap())
			a.limit(rr.Header().Ttl)
		}
	}
}

func (a *answer) limit(ttl uint32) {
	d := time.Duration(ttl) * time.Second
	if a.valid < 0 || d < a.valid {
		a.valid = d
	}
}

func (c *client) lookupSystem(ctx context.Context, name string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	network := "ip4"
	if c.ipv6 {
		network = "ip"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, network, strings.TrimSuffix(name, "."))
	var notFound *net.DNSError
	switch {
	case errors.As(err, &notFound) && notFound.IsNotFound:
		return answer{valid: negativeTTL}, nil
	case err != nil:
		return answer{}, fmt.Errorf("%w: %w", errTemporary, err)
	}
	out := answer{valid: systemTTL}
	for _, ip := range ips {
		out.addrs = append(out.addrs, ip.Unmap())
	}
	return out, nil
}

// query asks one question, of one name server after the other until one has an
// answer. That a name does not exist is an answer without records.
func (c *client) query(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	m.SetEdns0(1232, false)
	first := c.next.Add(1)
	var failed error
	for i := range c.servers {
		server := c.servers[(int(first)+i)%len(c.servers)]
		msg, err := c.exchange(ctx, m, server, time.Until(deadlineOf(ctx))/time.Duration(len(c.servers)-i))
		if err == nil {
			switch msg.Rcode {
			case dns.RcodeSuccess:
				return msg, nil
			case dns.RcodeNameError:
				msg.Answer = nil
				return msg, nil
			}
			err = fmt.Errorf("%s says %s", server, dns.RcodeToString[msg.Rcode])
		}
		failed = err
	}
	return nil, fmt.Errorf("%w: %w", errTemporary, failed)
}

func deadlineOf(ctx context.Context) time.Time {
	t, _ := ctx.Deadline()
	return t
}

// udpTries is how often a question is sent to one server: datagrams get lost.
const udpTries = 2

func (c *client) exchange(ctx context.Context, m *dns.Msg, server string, timeout time.Duration) (*dns.Msg, error) {
	var msg *dns.Msg
	var err error
	for range udpTries {
		udp := dns.Client{Net: "udp", Timeout: max(timeout/udpTries, 50*time.Millisecond), UDPSize: 4096}
		q := m.Copy()
		q.Id = uint16(rand.Uint32())
		if msg, _, err = udp.ExchangeContext(ctx, q, server); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if msg.Truncated {
		tcp := dns.Client{Net: "tcp", Timeout: timeout}
		msg, _, err = tcp.ExchangeContext(ctx, m.Copy(), server)
	}
	return msg, err
}

// target is one record of a service, with its addresses.
type target struct {
	host     string
	port     uint16
	priority uint16
	weight   uint16
	addrs    []netip.Addr
}

// lookupService returns the targets of an SRV name. Targets whose addresses are
// not known are left out, unless that leaves none.
func (c *client) lookupService(ctx context.Context, name string) ([]target, time.Duration, error) {
	records, valid, err := c.lookupSRV(ctx, name)
	if err != nil || len(records) == 0 {
		return nil, negativeTTL, err
	}
	var out []target
	var failed error
	missing := false
	for _, r := range records {
		a, err := c.lookup(ctx, r.host)
		switch {
		case err != nil:
			failed = err
			continue
		case len(a.addrs) == 0:
			missing = true
		}
		valid = min(valid, a.valid)
		if len(a.addrs) > 0 {
			r.addrs = a.addrs
			out = append(out, r)
		}
	}
	if len(out) == 0 && failed != nil && !missing {
		return nil, 0, failed
	}
	return out, valid, nil
}

func (c *client) lookupSRV(ctx context.Context, name string) ([]target, time.Duration, error) {
	if len(c.servers) == 0 {
		return c.lookupSystemSRV(ctx, name)
	}
	msg, err := c.query(ctx, name, dns.TypeSRV)
	if err != nil {
		return nil, 0, err
	}
	a := answer{valid: -1}
	var out []target
	for _, rr := range msg.Answer {
		srv, ok := rr.(*dns.SRV)
		if !ok {
			continue
		}
		a.limit(rr.Header().Ttl)
		out = append(out, target{host: strings.TrimSuffix(srv.Target, "."), port: srv.Port, priority: srv.Priority, weight: srv.Weight})
	}
	return byPriority(out), a.valid, nil
}

func (c *client) lookupSystemSRV(ctx context.Context, name string) ([]target, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
	var notFound *net.DNSError
	switch {
	case errors.As(err, &notFound) && notFound.IsNotFound:
		return nil, negativeTTL, nil
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", errTemporary, err)
	}
	var out []target
	for _, r := range records {
		out = append(out, target{host: strings.TrimSuffix(r.Target, "."), port: r.Port, priority: r.Priority, weight: r.Weight})
	}
	return byPriority(out), systemTTL, nil
}

// byPriority sorts targets so that equal answers look equal, whatever order the
// name server gave them.
func byPriority(list []target) []target {
	slices.SortStableFunc(list, func(a, b target) int {
		if a.priority != b.priority {
			return int(a.priority) - int(b.priority)
		}
		if a.host != b.host {
			return strings.Compare(a.host, b.host)
		}
		return int(a.port) - int(b.port)
	})
	return list
}
