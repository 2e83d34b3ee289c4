// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// CheckAddress reports what is wrong with the address of a server, as written
// in a configuration: `host:port`, `host`, or `unix//path/to.sock`. Of one with
// placeholders it checks only that they can have a value before there is a
// request.
func CheckAddress(address string) error {
	if strings.ContainsAny(address, "{}") {
		return checkPlaceholders(address)
	}
	_, _, _, err := splitAddress(address)
	return err
}

// placeholder is one in an address; those that are global have a value when
// the configuration is loaded.
var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	global      = regexp.MustCompile(`^\{(env|system|file)\.`)
)

func checkPlaceholders(address string) error {
	for _, p := range placeholder.FindAllString(address, -1) {
		if !global.MatchString(p) {
			return fmt.Errorf("placeholder %s: only those of the environment, such as {env.HOST}, can be used in an address", p)
		}
	}
	if strings.ContainsAny(placeholder.ReplaceAllString(address, ""), "{}") {
		return fmt.Errorf("a brace without its pair: expected {env.HOST}, or {$HOST} in a Caddyfile")
	}
	return nil
}

// settle replaces the global placeholders of an address.
func settle(address string) (string, error) {
	if !strings.ContainsAny(address, "{}") {
		return address, nil
	}
	if err := checkPlaceholders(address); err != nil {
		return "", fmt.Errorf("%s: %w", address, err)
	}
	repl := caddy.NewReplacer()
	var unset string
	settled := placeholder.ReplaceAllStringFunc(address, func(p string) string {
		value := repl.ReplaceKnown(p, "")
		if value == "" || value == p {
			unset = p
		}
		return value
	})
	if unset != "" {
		return "", fmt.Errorf("%s: placeholder %s has no value", address, unset)
	}
	return settled, nil
}

// hostName is roughly what may stand for a host: it catches other things, and
// leaves the rest to the resolver.
var hostName = regexp.MustCompile(`^[\pL\pN_][\pL\pN_.-]*$`)

// splitAddress splits an address without placeholders: into host and port,
// which is 80 if there is none, or the path of a unix socket.
func splitAddress(address string) (host string, port uint16, path string, err error) {
	network, rest, hasNetwork := strings.Cut(address, "/")
	switch {
	case strings.HasPrefix(address, "unix:"):
		return "", 0, "", fmt.Errorf("expected unix//path/to.sock for a unix socket")
	case strings.Contains(address, "://"):
		return "", 0, "", fmt.Errorf("expected host:port without a scheme")
	case hasNetwork && network == "unix":
		if rest == "" {
			return "", 0, "", fmt.Errorf("the path of the socket is missing: expected unix//path/to.sock")
		}
		return "", 0, rest, nil
	case hasNetwork && (strings.ContainsAny(network, ".:[]") || network == ""):
		return "", 0, "", fmt.Errorf("unexpected path %q: expected host:port", "/"+rest)
	case hasNetwork && network != "tcp":
		return "", 0, "", fmt.Errorf("network %q: expected host:port or unix//path/to.sock", network)
	case hasNetwork:
		address = rest
	}
	host, port, err = splitHostPort(address)
	return host, port, "", err
}

func splitHostPort(address string) (host string, port uint16, err error) {
	if ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")); err == nil {
		return ip.String(), 80, nil
	}
	host, text := address, "80"
	if strings.Contains(address, ":") {
		if host, text, err = net.SplitHostPort(address); err != nil {
			return "", 0, fmt.Errorf("expected host:port, an IPv6 address in brackets")
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	_, notIP := netip.ParseAddr(host)
	switch first, last, ranged := strings.Cut(text, "-"); {
	case ranged && first != "" && last != "":
		return "", 0, fmt.Errorf("port range %s: expected one port", text)
	case err != nil || n == 0:
		return "", 0, fmt.Errorf("port %q: expected a number from 1 to 65535", text)
	case host == "":
		return "", 0, fmt.Errorf("the host is missing: expected host:port")
	case notIP != nil && !hostName.MatchString(host):
		return "", 0, fmt.Errorf("%q is neither an IP address nor a host name", host)
	}
	return host, uint16(n), nil
}

// HostOf returns the host of a server's line, which is what a certificate of the
// server is for; empty for a unix socket.
func HostOf(line string) string {
	if strings.HasPrefix(line, "unix/") {
		return ""
	}
	line = strings.TrimPrefix(line, "tcp/")
	if !strings.Contains(line, ":") { // the target of an SRV record, or port 80
		return line
	}
	if host, _, err := net.SplitHostPort(line); err == nil {
		return host
	}
	return strings.Trim(line, "[]")
}
