// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"fmt"
	"os"
	"slices"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "nginx-upstream",
		Usage: "fmt <nginx.conf>",
		Short: "Prints an nginx.conf as a Caddyfile",
		Long: `
Prints the upstream blocks and the plain proxying of an nginx.conf as a Caddyfile, to go
on from. What has no form in a Caddyfile is an error; the adapter nginx-upstream
runs more than that. Of headers the Caddyfile has Caddy's conventions: Host and
X-Forwarded-* are set by Caddy.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(&cobra.Command{
				Use: "fmt <nginx.conf>", Short: "Prints a Caddyfile", Args: cobra.ExactArgs(1),
				RunE: func(c *cobra.Command, args []string) error {
					c.SilenceUsage = true
					body, err := os.ReadFile(args[0])
					if err != nil {
						return err
					}
					text, err := Caddyfile(body, args[0])
					if err != nil {
						return err
					}
					_, err = fmt.Fprint(c.OutOrStdout(), text)
					return err
				},
			})
		},
	})
}

// Caddyfile prints a configuration as a Caddyfile. The error lists, one a line,
// what has no form there.
func Caddyfile(body []byte, name string) (string, error) {
	dirs, comments, err := parse(body, name)
	if err != nil {
		return "", err
	}
	a := newAdapter(name)
	if err := a.options(comments, nil); err != nil {
		return "", err
	}
	if _, err := a.adapt(dirs); err != nil {
		return "", err
	}
	p := &printer{a: a}
	p.file()
	if len(p.errs) > 0 {
		return "", joinErrors(p.errs)
	}
	return p.b.String(), nil
}

// printer writes a Caddyfile.
type printer struct {
	a     *adapter
	b     strings.Builder
	depth int
	errs  []error
}

func (p *printer) line(format string, args ...any) {
	p.b.WriteString(strings.Repeat("\t", p.depth))
	fmt.Fprintf(&p.b, format, args...)
	p.b.WriteByte('\n')
}

func (p *printer) block(head string, f func()) {
	p.line("%s {", head)
	p.depth++
	f()
	p.depth--
	p.line("}")
}

func (p *printer) cannot(d *dir, what string) {
	p.errs = append(p.errs, d.errorf("%s has no form in a Caddyfile here: use the adapter nginx-upstream", what))
}

func (p *printer) file() {
	if p.a.streamScope != nil {
		p.cannot(p.a.streamScope.at, "stream")
	}
	p.block("", func() {
		if p.a.admin == "" {
			p.line("admin off")
		} else {
			p.line("admin %s", p.a.admin)
		}
		p.line("auto_https off")
		for _, g := range p.a.order {
			p.group(g)
		}
	})
	for _, v := range p.a.vhosts {
		p.b.WriteByte('\n')
		p.site(v)
	}
	out := strings.TrimPrefix(p.b.String(), " ")
	p.b.Reset()
	p.b.WriteString(out)
}

// printable are the directives of servers and locations that the printer knows.
var printable = map[string]bool{
	"proxy_pass": true, "proxy_connect_timeout": true, "proxy_send_timeout": true, "proxy_read_timeout": true,
	"proxy_next_upstream": true, "proxy_next_upstream_tries": true, "proxy_next_upstream_timeout": true,
	"proxy_buffering": true, "proxy_request_buffering": true, "proxy_http_version": true, "proxy_set_header": true,
	"server_name": true, "location": true, "vhost": true, "client_max_body_size": true,
	"resolver": true, "resolver_timeout": true, // which groups have
}

// known reports what stands in a scope and cannot be printed.
func (p *printer) known(s *scope, at *dir) {
	var unknown []string
	for name := range s.values {
		if !printable[name] {
			unknown = append(unknown, name)
		}
	}
	for name := range s.lists {
		if !printable[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		p.cannot(at, name)
	}
}

func (p *printer) site(v *vhost) {
	p.known(v.scope, v.at)
	p.known(p.a.httpScope, v.at)
	var addresses []string
	bind := ""
	for _, l := range v.listens {
		i := strings.LastIndexByte(l.address, ':')
		host := ""
		if i >= 0 {
			host = l.address[:i]
		}
		if l.ssl || l.proxy || l.port == "" || bind != "" && bind != host {
			p.cannot(l.at, "this listen")
			return
		}
		bind = host
		for _, n := range v.names {
			if n.regex || strings.HasSuffix(n.text, ".*") || strings.HasPrefix(n.text, ".") {
				p.cannot(v.at, fmt.Sprintf("server_name %q", n.text))
			}
			name := n.text
			if name == "_" {
				name = ""
			}
			addresses = append(addresses, "http://"+name+":"+l.port)
		}
	}
	p.block(strings.Join(addresses, ", "), func() {
		p.line("bind %s", bind)
		if len(v.scope.steps) > 0 {
			p.answer(v.scope, v.at)
			return
		}
		for _, in := range v.scope.inner {
			p.location(in)
		}
	})
}

func (p *printer) location(s *scope) {
	p.known(s, s.at)
	l := s.values["location"].(*nginxhttp.Location)
	matcher := l.Path + "*"
	switch {
	case len(s.inner) > 0, l.Modifier == "~", l.Modifier == "~*", l.Modifier == "@":
		p.cannot(s.at, "this location")
		return
	case l.Modifier == "=":
		matcher = l.Path
	}
	head := "handle " + matcher
	if matcher == "/*" {
		head = "handle"
	}
	p.block(head, func() {
		if len(s.steps) > 0 {
			p.answer(s, s.at)
			return
		}
		pass, ok := own[*proxyPass](s, "proxy_pass")
		if !ok {
			p.cannot(s.at, "a location without proxy_pass")
			return
		}
		p.proxy(s, pass)
	})
}

// answer prints a return of a status and a text.
func (p *printer) answer(s *scope, at *dir) {
	r := s.steps[0]
	if len(s.steps) > 1 || r.Return == 0 || r.Return == 444 || isRedirect(r.Return) ||
		r.Text != nil && strings.ContainsAny(*r.Text, "{}\\`\"") {
		p.cannot(at, "what it does with rewrite rules")
		return
	}
	text := ""
	if r.Text != nil {
		text = *r.Text
	}
	p.line("respond %q %d", text, r.Return)
}

func isRedirect(status int) bool { return status >= 301 && status <= 308 }

// headerPlaceholders are the variables that proxy_set_header may have here.
var headerPlaceholders = map[string]string{
	"$host": "{http.request.host}", "$remote_addr": "{http.request.remote.host}", "$scheme": "{http.request.scheme}",
	"$request_uri": "{http.request.orig_uri}", "$request_method": "{http.request.method}",
}

func (p *printer) proxy(s *scope, pass *proxyPass) {
	if pass.https || pass.hasURI || hasVariables(pass.host) {
		p.cannot(pass.at, "https, a path or a variable in proxy_pass")
		return
	}
	t, err := p.a.target(pass, pass.host)
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	to := t.group.id
	if t.group.scope == nil {
		to = t.group.config.Servers[0].Address
	}
	if limit := value(s, "client_max_body_size", int64(1<<20)); limit > 0 {
		p.block("request_body", func() { p.line("max_size %d", limit) })
	}
	p.block("proxy_pass "+to, func() {
		if t.group.scope == nil { // nginx keeps no connections to a mere address
			p.line("keepalive off")
		}
		if value(s, "proxy_http_version", p.a.httpVersion()) == "1.0" {
			p.line("http_version 1.0")
		}
		for _, name := range []string{"connect", "send", "read"} {
			if d := value(s, "proxy_"+name+"_timeout", zeroTime); d > 0 {
				p.line("%s_timeout %s", name, d)
			}
		}
		if c := value(s, "proxy_next_upstream", []string(nil)); c != nil {
			p.line("next_upstream %s", strings.Join(c, " "))
		}
		if n := value(s, "proxy_next_upstream_tries", 0); n > 0 {
			p.line("next_upstream_tries %d", n)
		}
		if d := value(s, "proxy_next_upstream_timeout", zeroTime); d > 0 {
			p.line("next_upstream_timeout %s", d)
		}
		if !value(s, "proxy_request_buffering", true) {
			p.line("request_buffering off")
		}
		if !value(s, "proxy_buffering", true) {
			p.line("flush_interval -1")
		}
		p.headers(s, pass, t)
	})
}

// headers prints proxy_set_header.
func (p *printer) headers(s *scope, pass *proxyPass, t *target) {
	host := t.host
	for _, h := range list[pair](s, "proxy_set_header") {
		switch name := strings.ToLower(h.name); {
		case name == "host" && (h.value == "$host" || h.value == "$http_host"):
			host = ""
		case name == "connection" || name == "upgrade" || name == "x-forwarded-for" && h.value == "$proxy_add_x_forwarded_for" ||
			name == "x-forwarded-proto" && h.value == "$scheme" || name == "x-forwarded-host" && h.value == "$host":
			// Caddy does that itself
		case h.value == "":
			p.line("header_up -%s", h.name)
		case headerPlaceholders[h.value] != "":
			p.line("header_up %s %s", h.name, headerPlaceholders[h.value])
		case hasVariables(h.value) || strings.ContainsAny(h.value, "{}\"\\` "):
			p.cannot(pass.at, fmt.Sprintf("proxy_set_header %s %q", h.name, h.value))
		default:
			p.line("header_up %s %s", h.name, h.value)
		}
	}
	if host != "" {
		p.line("header_up Host %s", host)
	}
}
