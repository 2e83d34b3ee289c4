// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

var errNumber = errors.New("invalid number")

// serverAddress turns the address of a server in an upstream block into Caddy's
// form.
func serverAddress(s string) (string, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" || strings.Contains(path, "{") {
			return "", fmt.Errorf("invalid path of a unix socket %q", s)
		}
		return "unix/" + path, nil
	}
	host, port, err := hostPort(s, 80)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// hostPort splits an address that may lack its port.
func hostPort(s string, def int) (host string, port int, err error) {
	host, port = s, def
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", 0, fmt.Errorf("invalid address %q", s)
		}
		host = s[1:end]
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return "", 0, fmt.Errorf("invalid IPv6 address in %q", s)
		}
		s = s[end+1:]
		if s == "" {
			return host, def, nil
		}
		if s[0] != ':' {
			return "", 0, fmt.Errorf("invalid address %q", s)
		}
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if host == s {
			host = s[:i]
		}
		if port, err = strconv.Atoi(s[i+1:]); err != nil || port < 1 || port > 65535 {
			return "", 0, fmt.Errorf("invalid port in %q: expected 1 to 65535", s)
		}
	}
	if host == "" {
		return "", 0, fmt.Errorf("no host in %q", s)
	}
	if strings.ContainsAny(host, "{}/ \t\r\n$\\") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", 0, fmt.Errorf("invalid host in %q", s)
	}
	return host, port, nil
}
