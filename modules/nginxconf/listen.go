// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// listen is one listen directive.
type listen struct {
	at      *dir
	address string // in Caddy's form
	port    string
	ssl     bool
	http2   bool
	proxy   bool // PROXY protocol
	isDef   bool
}

// listenMoot are parameters of listen that set the socket up.
var listenMoot = map[string]bool{
	"backlog": true, "rcvbuf": true, "sndbuf": true, "deferred": true, "bind": true, "reuseport": true,
	"so_keepalive": true, "fastopen": true, "setfib": true, "accept_filter": true,
}

// listen translates where a server listens.
func (a *adapter) listen(s *scope, d *dir) error {
	v := s.values["vhost"].(*vhost)
	l := &listen{at: d}
	ipv6only := true
	for _, p := range d.args[1:] {
		name, value, _ := strings.Cut(p, "=")
		switch {
		case p == "ssl":
			l.ssl = true
		case p == "http2":
			l.http2 = true
		case p == "proxy_protocol":
			l.proxy = true
		case p == "default_server" || p == "default":
			l.isDef = true
		case name == "ipv6only":
			ipv6only = value != "off"
		case listenMoot[name]:
			a.warn(d, "%s: %s", name, sockets)
		case p == "quic":
			return d.errorf("the parameter %q is not translated: enable protocol h3 of Caddy's server", p)
		default:
			return d.errorf("invalid parameter %q", p)
		}
	}
	var err error
	if l.address, l.port, err = listenAddress(d.args[0], ipv6only); err != nil {
		return d.errorf("%v", err)
	}
	for _, other := range v.listens {
		if other.address == l.address {
			return d.errorf("a duplicate listen %s", d.args[0])
		}
	}
	v.listens = append(v.listens, l)
	return nil
}

// listenAddress turns the address of a listen directive into Caddy's form. A
// wildcard is for one version of IP only, as in nginx.
func listenAddress(s string, ipv6only bool) (address, port string, err error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return "", "", errors.New("unix: without a path")
		}
		return "unix/" + path, "", nil
	}
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 65535 {
			return "", "", fmt.Errorf("invalid port %s", s)
		}
		return "tcp4/0.0.0.0:" + s, s, nil
	}
	if rest, ok := strings.CutPrefix(s, "*:"); ok {
		s = "0.0.0.0:" + rest
	}
	if s == "*" {
		s = "0.0.0.0"
	}
	host, n, err := hostPort(s, 80)
	if err != nil {
		return "", "", err
	}
	port = strconv.Itoa(n)
	address = net.JoinHostPort(host, port)
	ip := net.ParseIP(host)
	switch {
	case ip == nil || !ip.IsUnspecified():
	case ip.To4() != nil:
		address = "tcp4/" + address
	case ipv6only:
		address = "tcp6/" + address
	default:
		address = ":" + port
	}
	return address, port, nil
}

func hostname() string {
	h, _ := os.Hostname()
	return strings.ToLower(h)
}
