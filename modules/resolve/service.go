// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// target is one record of a service, with its addresses.
type target struct {
	host     string
	port     uint16
	priority uint16
	weight   uint16
	addrs    []netip.Addr
}

// atOnce is how many targets of a service are looked up at the same time.
const atOnce = 16

// lookupService returns the targets of an SRV name. Targets whose addresses are
// not known are left out, unless that leaves none.
func (c *client) lookupService(ctx context.Context, name string) ([]target, time.Duration, error) {
	records, valid, err := c.lookupSRV(ctx, name)
	if err != nil || len(records) == 0 {
		return nil, negativeTTL, err
	}
	answers, errs := c.lookupAll(ctx, records)
	var out []target
	var failed error
	missing := false
	for _, r := range records {
		a, err := answers[r.host], errs[r.host]
		switch {
		case err != nil:
			failed = err
			continue
		case len(a.addrs) == 0:
			missing = true
		default:
			r.addrs = a.addrs
			out = append(out, r)
		}
		valid = min(valid, a.valid)
	}
	switch {
	case len(out) == 0 && failed != nil && !missing:
		return nil, 0, failed
	case failed != nil:
		valid = min(valid, c.timeout) // what is missing is asked for soon
	}
	return out, valid, nil
}

// lookupAll looks up the hosts of records, each once.
func (c *client) lookupAll(ctx context.Context, records []target) (map[string]answer, map[string]error) {
	var mu sync.Mutex // guards the maps
	answers, errs := map[string]answer{}, map[string]error{}
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	asked := map[string]bool{}
	for _, r := range records {
		if asked[r.host] {
			continue
		}
		asked[r.host] = true
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			a, err := c.lookup(ctx, r.host)
			mu.Lock()
			defer mu.Unlock()
			answers[r.host], errs[r.host] = a, err
		})
	}
	wg.Wait()
	return answers, errs
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
	owners := aliases(msg, name)
	var out []target
	for _, rr := range msg.Answer {
		if !owners[dns.CanonicalName(rr.Header().Name)] {
			continue
		}
		a.limit(rr.Header().Ttl)
		if srv, ok := rr.(*dns.SRV); ok && srv.Target != "." { // ".": not here
			out = append(out, target{host: strings.TrimSuffix(srv.Target, "."), port: srv.Port, priority: srv.Priority, weight: srv.Weight})
		}
	}
	return byPriority(out), a.valid, nil
}

// byPriority sorts targets so that equal answers look equal, whatever order the
// name server gave them.
func byPriority(list []target) []target {
	slices.SortStableFunc(list, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.host, b.host),
			cmp.Compare(a.port, b.port), cmp.Compare(a.weight, b.weight))
	})
	return list
}
