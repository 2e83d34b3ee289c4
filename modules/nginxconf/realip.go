// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"net/netip"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// realIP says whose word about the client's address is believed in a scope, nil
// if that is as in the one around it.
func (a *adapter) realIP(s *scope) (*nginxhttp.RealIP, error) {
	_, from := s.lists["set_real_ip_from"]
	_, header := s.values["real_ip_header"]
	_, recursive := s.values["real_ip_recursive"]
	if s.kind != inServer && !from && !header && !recursive {
		return nil, nil
	}
	believed, err := trusted(s)
	if err != nil {
		return nil, s.at.errorf("set_real_ip_from: %v", err)
	}
	if believed == nil {
		return nil, nil
	}
	p := &nginxhttp.RealIP{From: believed, Recursive: value(s, "real_ip_recursive", false)}
	if name := value(s, "real_ip_header", ""); name != "X-Real-IP" {
		p.Header = name
	}
	return p, nil
}

// trusted is the list of set_real_ip_from as addresses and networks.
func trusted(s *scope) (from []string, err error) {
	for _, f := range list[string](s, "set_real_ip_from") {
		if f == "unix:" {
			from = append(from, f)
			continue
		}
		_, err1 := netip.ParsePrefix(f)
		_, err2 := netip.ParseAddr(f)
		if err1 == nil || err2 == nil {
			from = append(from, f)
			continue
		}
		ips, err := lookup(f)
		if err != nil {
			return nil, err
		}
		from = append(from, ips...)
	}
	return from, nil
}
