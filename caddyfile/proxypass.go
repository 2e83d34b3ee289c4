// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("proxy_pass", parseProxyPass)
	httpcaddyfile.RegisterDirectiveOrder("proxy_pass", httpcaddyfile.Before, "reverse_proxy")
}

// passedOn are the subdirectives of reverse_proxy that keep their meaning, and
// whether they may stand more than once.
var passedOn = map[string]bool{
	"header_up": true, "header_down": true, "trusted_proxies": true,
	"replace_status": true, "handle_response": true,

	"flush_interval": false, "response_buffers": false, "stream_timeout": false,
	"stream_close_delay": false, "stream_buffer_size": false, "method": false,
	"rewrite": false, "verbose_logs": false, "proxy_status_name": false,
}

// refused are the subdirectives of reverse_proxy that would do nothing, with
// what to use instead. A name that ends in _ stands for all that begin so.
var refused = map[string]string{
	"to":              "name the addresses after proxy_pass, or a group",
	"dynamic":         "use a group: its servers can change",
	"lb_policy":       "write the method into the group, or use reverse_proxy",
	"lb_retries":      "use next_upstream_tries",
	"lb_try_duration": "use next_upstream_timeout",
	"lb_try_interval": "there is no wait between tries",
	"lb_retry_match":  "use next_upstream",
	"health_":         "active checks belong to the group",
	"max_fails":       "write max_fails= on the server's line",
	"fail_duration":   "write fail_timeout= on the server's line",
	"unhealthy_":      "use next_upstream and max_fails= on the server's line",
	"request_buffers": "use request_buffering and request_buffer_size",
	"transport":       "write the transport's options here, or use reverse_proxy",
}

// proxyPass is one directive while it is read.
type proxyPass struct {
	helper  httpcaddyfile.Helper
	group   string   // or
	targets []string // addresses, with scheme and port
	scheme  string
	back    *backend
	kept    []caddyfile.Token // the block as reverse_proxy shall see it
}

func parseProxyPass(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next()
	tokens := []caddyfile.Token(h.NextSegment())
	p := &proxyPass{helper: h, back: newBackend()}
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	if err := p.readTargets(d); err != nil {
		return nil, err
	}
	if err := p.readBlock(d); err != nil {
		return nil, err
	}
	handler := new(reverseproxy.Handler)
	if err := handler.UnmarshalCaddyfile(caddyfile.NewDispenser(p.forReverseProxy(tokens))); err != nil {
		return nil, err
	}
	policy := any(&upstream.Policy{Group: p.group})
	name := "upstream"
	if p.group == "" {
		policy, name = &upstream.StaticPool{}, "smooth_round_robin"
	}
	handler.LoadBalancing = &reverseproxy.LoadBalancing{
		SelectionPolicyRaw: caddyconfig.JSONModuleObject(policy, "policy", name, nil),
	}
	transport, err := p.back.transport(p.scheme)
	if err != nil {
		return nil, err
	}
	handler.TransportRaw = caddyconfig.JSONModuleObject(transport, "protocol", "next_upstream", nil)
	return handler, handler.FinalizeUnmarshalCaddyfile(h)
}

// readTargets reads the arguments of the directive's line.
func (p *proxyPass) readTargets(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.Err("proxy_pass: expected a group or one or more addresses")
	}
	groups, err := p.groups()
	if err != nil {
		return d.WrapErr(err)
	}
	scheme, rest := splitScheme(args[0])
	if groups.has(rest) {
		if len(args) > 1 {
			return d.Errf("proxy_pass: unexpected %q after the group %s: expected one group, or addresses", args[1], rest)
		}
		p.group, p.scheme = rest, scheme
		if n := groups[rest].Keepalive.Connections; n != nil && *n == 0 {
			p.back.http1.GroupKeepsNone()
		}
		return p.checkScheme(d)
	}
	switch {
	case strings.ContainsAny(args[0], ":/"):
	case strings.Contains(args[0], "{"):
		return d.Errf("proxy_pass: placeholder %s is neither a group nor an address: expected a port, as in {env.HOST}:8080, or {$ADDRESS}, which is replaced before", args[0])
	default:
		return d.Errf("proxy_pass: unknown group %q: %s; an address needs a port or a scheme", args[0], listGroups(groups))
	}
	for i, arg := range args {
		s, address := splitScheme(arg)
		if i > 0 && s != p.scheme {
			return d.Errf("proxy_pass: %s: all addresses must have the same scheme as %s", arg, args[0])
		}
		p.scheme = s
		if groups.has(address) {
			return d.Errf("proxy_pass: unexpected group %s among addresses: expected one group, or addresses", address)
		}
		if err := p.checkScheme(d); err != nil {
			return err
		}
		if err := checkTarget(s, address); err != nil {
			return d.Errf("proxy_pass %s: %v", arg, err)
		}
		p.targets = append(p.targets, withPort(s, address))
	}
	return nil
}

// portRange is what reverse_proxy takes for one address for each port.
var portRange = regexp.MustCompile(`:([0-9]+)-[0-9]+$`)

// checkTarget finds what is wrong with an address behind its scheme.
func checkTarget(scheme, address string) error {
	if scheme != "" && strings.HasPrefix(address, "unix/") {
		return errors.New("a unix socket takes no scheme: expected unix//path/to.sock, with the option tls for TLS")
	}
	if scheme != "" && strings.Contains(address, "{") {
		return errors.New("a placeholder cannot follow a scheme: expected the address without it, with the option tls for https")
	}
	if host, rest, found := strings.Cut(address, "/"); found && !strings.HasPrefix(address, "unix:") && (scheme != "" || strings.Contains(host, ":")) {
		return fmt.Errorf("unexpected path %q: expected host:port; to change the path of requests use rewrite or handle_path", "/"+rest)
	}
	if strings.Contains(address, "?") {
		return fmt.Errorf("unexpected query: expected host:port")
	}
	return upstream.CheckAddress(portRange.ReplaceAllString(address, ":$1"))
}

func (p *proxyPass) checkScheme(d *caddyfile.Dispenser) error {
	switch p.scheme {
	case "", "http", "https", "h2c":
		return nil
	}
	return d.Errf("proxy_pass: unsupported scheme %s://: expected http://, https:// or h2c://", p.scheme)
}

// groups is what matters here of the groups of the global option upstream, by name.
type groups map[string]struct {
	Keepalive struct{ Connections *int }
}

func (p *proxyPass) groups() (groups, error) {
	option, ok := p.helper.Option("upstream").(httpcaddyfile.App)
	if !ok {
		return nil, nil
	}
	var app struct{ Groups groups }
	err := json.Unmarshal(option.Value, &app)
	return app.Groups, err
}

func (g groups) has(name string) bool {
	_, ok := g[name]
	return ok
}

func listGroups(groups groups) string {
	if len(groups) == 0 {
		return "there is no upstream in the global options"
	}
	return "known groups: " + strings.Join(slices.Sorted(maps.Keys(groups)), ", ")
}

func splitScheme(s string) (scheme, rest string) {
	if before, after, ok := strings.Cut(s, "://"); ok {
		return before, after
	}
	return "", s
}

// withPort completes an address: 443 for https, 80 for all else.
func withPort(scheme, address string) string {
	prefix := ""
	if scheme != "" {
		prefix = scheme + "://"
	}
	if strings.HasPrefix(address, "unix/") {
		return prefix + address
	}
	if _, _, err := net.SplitHostPort(address); err != nil && !strings.Contains(address, "/") {
		port := "80"
		if scheme == "https" {
			port = "443"
		}
		address = net.JoinHostPort(strings.Trim(address, "[]"), port)
	}
	return prefix + address
}

// readBlock sorts the lines of the block: ours are read, those of reverse_proxy
// kept, and all others refused.
func (p *proxyPass) readBlock(d *caddyfile.Dispenser) error {
	own := p.back.options()
	seen := map[string]bool{}
	last := ""
	for d.NextBlock(0) {
		name := d.Val()
		set, ours := own[name]
		repeatable, theirs := passedOn[name]
		if name == "{" {
			return d.Errf("proxy_pass: unexpected block after %s: expected none", last)
		}
		if (ours || theirs) && seen[name] && !repeatable {
			return d.Errf("proxy_pass: option %q given twice", name)
		}
		seen[name], last = true, name
		if ours {
			if err := set(d); err != nil {
				return err
			}
			continue
		}
		if theirs || strings.HasPrefix(name, "@") {
			p.kept = append(p.kept, d.NextSegment()...)
			continue
		}
		if instead := refusal(name); instead != "" {
			return d.Errf("proxy_pass: %s does nothing here: %s", name, instead)
		}
		return d.Errf("proxy_pass: unknown option %q: expected %s", name, strings.Join(optionNames(own), ", "))
	}
	return nil
}

func refusal(name string) string {
	if instead := refused[name]; instead != "" {
		return instead
	}
	for prefix, instead := range refused {
		if strings.HasSuffix(prefix, "_") && strings.HasPrefix(name, prefix) {
			return instead
		}
	}
	return ""
}

// forReverseProxy returns the directive as reverse_proxy shall read it: the
// addresses, and the block without our lines. The braces are the user's own, so
// that positions in errors stay right.
func (p *proxyPass) forReverseProxy(tokens []caddyfile.Token) []caddyfile.Token {
	first := tokens[0]
	out := []caddyfile.Token{first}
	for _, t := range p.targets {
		token := first
		token.Text = t
		out = append(out, token)
	}
	if len(p.kept) == 0 {
		return out
	}
	open := first
	open.Text = "{"
	out = append(out, open)
	out = append(out, p.kept...)
	return append(out, tokens[len(tokens)-1])
}
