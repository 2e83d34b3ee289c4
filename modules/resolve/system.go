// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// The system's resolver knows /etc/hosts and whatever else the machine is set
// up with, and tells no lifetime.

func (c *client) lookupSystem(ctx context.Context, name string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	network := "ip4"
	if c.ipv6 {
		network = "ip"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, network, name)
	if err != nil {
		if isNotFound(err) {
			return answer{valid: negativeTTL}, nil
		}
		return answer{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	out := answer{valid: systemTTL}
	for _, ip := range ips {
		out.addrs = append(out.addrs, ip.Unmap())
	}
	return out, nil
}

func (c *client) lookupSystemSRV(ctx context.Context, name string) ([]target, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
	if err != nil {
		if isNotFound(err) {
			return nil, negativeTTL, nil
		}
		return nil, 0, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	var out []target
	for _, r := range records {
		if r.Target != "." {
			out = append(out, target{host: strings.TrimSuffix(r.Target, "."), port: r.Port, priority: r.Priority, weight: r.Weight})
		}
	}
	return byPriority(out), systemTTL, nil
}

func isNotFound(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound
}
