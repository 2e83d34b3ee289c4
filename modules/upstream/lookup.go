// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Names without resolve are looked up once, with the system's resolver, while
// the configuration is provisioned: a name that does not exist stops the start.
// On a reload, a resolver that cannot be reached leaves a server the addresses
// that it has.

// lookupTimeout bounds the name look-ups of one group while a configuration is
// loaded, which happen lookupsAtOnce at a time.
const (
	lookupTimeout = 5 * time.Second
	lookupsAtOnce = 32
)

// running is the live state that a configuration is read against.
type running interface {
	// addressesOf returns the addresses that the host name of a line has.
	addressesOf(line string) []string
	// keeps is told that they are kept because of err.
	keeps(line string, err error)
}

// lookUp returns the addresses of a host name, in the resolver's order; those
// that the server line has already stay in front.
func lookUp(ctx context.Context, host string, port uint16, line string, known running) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	before := known.addressesOf(line)
	if err != nil {
		var e *net.DNSError
		if before == nil || errors.As(err, &e) && e.IsNotFound {
			return nil, fmt.Errorf("looking up %q: %w", host, err)
		}
		known.keeps(line, err)
		return before, nil
	}
	var addresses []string
	for _, ip := range ips {
		if a := netip.AddrPortFrom(ip.Unmap(), port).String(); !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	slices.SortStableFunc(addresses, func(a, b string) int {
		return rank(before, a) - rank(before, b)
	})
	return addresses, nil
}

// rank is a's place in list, the end if it is not there.
func rank(list []string, a string) int {
	if i := slices.Index(list, a); i >= 0 {
		return i
	}
	return len(list)
}

// resolveLines returns the peers of all servers and checks what only the
// whole list can show.
func resolveLines(ctx context.Context, servers []*Server, known running) ([]line, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	lines := make([]line, len(servers))
	errs := make([]error, len(servers))
	slots := make(chan struct{}, lookupsAtOnce)
	var wg sync.WaitGroup
	for i, s := range servers {
		switch {
		case s == nil:
			errs[i] = fmt.Errorf("server %d is null", i)
			continue
		case s.Address == "":
			errs[i] = fmt.Errorf("server %d: the address is missing", i)
			continue
		}
		lines[i].server = s
		if !s.named() {
			lines[i].peers, errs[i] = s.peers(ctx, known)
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			lines[i].peers, errs[i] = s.peers(ctx, known)
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return lines, checkLines(lines)
}

// named reports whether the peers of s hang on a look-up of its name.
func (s *Server) named() bool {
	if s.Resolve {
		return false
	}
	host, _, err := splitHostPort(s.Address)
	if err != nil {
		return true // a placeholder, or an error that peers finds
	}
	_, notIP := netip.ParseAddr(host)
	return notIP != nil
}
