// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/modules/resolve"
	"github.com/caddy-upstream/caddy-upstream/modules/sticky"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// group prints an upstream block.
func (p *printer) group(g *group) {
	c := g.config
	p.block("upstream "+g.id, func() {
		p.method(g)
		for _, s := range c.Servers {
			p.line("server %s", serverLine(s))
		}
		p.line("single_counts_down on")
		p.sticky(g)
		if q := c.Queue; q != nil {
			p.words("queue", strconv.Itoa(q.Size), parameter("timeout", q.Timeout))
		}
		p.resolver(g)
		if c.State {
			p.line("state")
		}
		if k := c.Keepalive; k != nil && k.Connections != nil {
			p.keepalive(k)
		}
	})
}

// words prints a line of those that are not empty.
func (p *printer) words(words ...string) {
	p.line("%s", strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
}

// parameter is name=duration, empty without a duration.
func parameter(name string, d caddy.Duration) string {
	if d == 0 {
		return ""
	}
	return name + "=" + time.Duration(d).String()
}

// wordIf is name where it is on.
func wordIf(name string, on bool) string {
	if on {
		return name
	}
	return ""
}

// textParameter is name=text, empty without a text.
func (p *printer) textParameter(g *group, name, text string) string {
	if text == "" {
		return ""
	}
	return p.text(g, name+"="+text)
}

func (p *printer) method(g *group) {
	var m struct {
		Method, Key, Time string
		LeastTime         string `json:"least_time"`
		Consistent        bool
		Two, Inflight     bool
	}
	if g.config.BalancerRaw == nil {
		return
	}
	if err := json.Unmarshal(g.config.BalancerRaw, &m); err != nil {
		p.errs = append(p.errs, err)
		return
	}
	if m.LeastTime != "" {
		m.LeastTime = "least_time=" + m.LeastTime
	}
	p.words(m.Method, p.text(g, m.Key), wordIf("consistent", m.Consistent), wordIf("two", m.Two), m.LeastTime, m.Time, wordIf("inflight", m.Inflight))
}

func (p *printer) sticky(g *group) {
	raw := g.config.StickyRaw
	var mode struct{ Mode string }
	if raw == nil || json.Unmarshal(raw, &mode) != nil {
		return
	}
	switch mode.Mode {
	case "cookie":
		var c sticky.Cookie
		_ = json.Unmarshal(raw, &c)
		expires := ""
		if c.Expires != nil {
			expires = "expires=" + time.Duration(*c.Expires).String()
		}
		p.words("sticky cookie", c.Name, expires, p.textParameter(g, "domain", c.Domain), p.textParameter(g, "path", c.Path),
			wordIf("httponly", c.HTTPOnly), wordIf("secure", c.Secure), p.textParameter(g, "samesite", c.SameSite))
	case "route":
		var r sticky.Route
		_ = json.Unmarshal(raw, &r)
		words := []string{"sticky route"}
		for _, v := range r.Values {
			words = append(words, p.text(g, v))
		}
		p.words(words...)
	case "learn":
		var l sticky.Learn
		_ = json.Unmarshal(raw, &l)
		words := []string{"sticky learn"}
		for _, v := range l.Create {
			words = append(words, p.textParameter(g, "create", v))
		}
		for _, v := range l.Lookup {
			words = append(words, p.textParameter(g, "lookup", v))
		}
		words = append(words, "zone="+l.Zone+":"+strconv.FormatInt(l.ZoneSize, 10), parameter("timeout", l.Timeout), wordIf("header", l.Header))
		p.words(words...)
	}
}

func (p *printer) resolver(g *group) {
	var dns resolve.DNS
	if g.config.ResolverRaw == nil || json.Unmarshal(g.config.ResolverRaw, &dns) != nil {
		return
	}
	words := append([]string{"resolver"}, dns.Addresses...)
	if dns.IPv6 != "" {
		words = append(words, "ipv6="+dns.IPv6)
	}
	p.words(append(words, parameter("valid", dns.Valid), parameter("timeout", dns.Timeout))...)
}

func (p *printer) keepalive(k *upstream.Keepalive) {
	if *k.Connections == 0 {
		p.line("keepalive off")
		return
	}
	p.words("keepalive", strconv.Itoa(*k.Connections), wordIf("local", k.Local))
	if k.Requests > 0 {
		p.line("keepalive_requests %d", k.Requests)
	}
	if k.Time > 0 {
		p.line("keepalive_time %s", time.Duration(k.Time))
	}
	if k.Timeout > 0 {
		p.line("keepalive_timeout %s", time.Duration(k.Timeout))
	}
	p.line("keepalive_stale %s", k.Stale)
}

func serverLine(s *upstream.Server) string {
	words := []string{s.Address}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+"="+value)
		}
	}
	add("id", s.ID)
	add("route", s.Route)
	add("service", s.Service)
	number := func(name string, n *int) {
		if n != nil {
			add(name, strconv.Itoa(*n))
		}
	}
	number("weight", s.Weight)
	number("max_fails", s.MaxFails)
	if s.FailTimeout != nil {
		add("fail_timeout", time.Duration(*s.FailTimeout).String())
	}
	if s.MaxConns > 0 {
		number("max_conns", &s.MaxConns)
	}
	words = append(words, parameter("slow_start", s.SlowStart), wordIf("backup", s.Backup), wordIf("down", s.Down),
		wordIf("drain", s.Drain), wordIf("resolve", s.Resolve))
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	slices.Sort(words[1:])
	return strings.Join(words, " ")
}

var ofNginx = regexp.MustCompile(`\{nginx\.([a-z0-9_]+)\}`)

// text is a text of a group as one token, empty for an empty one.
func (p *printer) text(g *group, text string) string { return p.tokenIf(g.at, p.ours(g.at, text)) }

// value is a text that can be written without quotes.
func (p *printer) value(at *dir, text string) string {
	out := p.ours(at, text)
	if strings.ContainsAny(out, " \"`\\") {
		p.cannot(at, strconv.Quote(text))
	}
	return out
}

// ours is a text with Caddy's own placeholders in the place of nginx's variables.
func (p *printer) ours(at *dir, text string) string {
	text = strings.ReplaceAll(text, "{nginx.is_args}{nginx.args}", "{http.request.uri.prefixed_query}")
	return ofNginx.ReplaceAllStringFunc(text, func(v string) string {
		name := ofNginx.FindStringSubmatch(v)[1]
		if own := ownPlaceholder(name); own != "" {
			return own
		}
		p.cannot(at, "$"+name)
		return v
	})
}

// ownPlaceholder is Caddy's placeholder for a variable, empty if there is none.
func ownPlaceholder(name string) string {
	if own := headerPlaceholders["$"+name]; own != "" {
		return own
	}
	for _, f := range []struct{ prefix, own string }{
		{"arg_", "{http.request.uri.query."}, {"cookie_", "{http.request.cookie."}, {"upstream_cookie_", "{http.upstream.cookie."},
	} {
		if rest, ok := strings.CutPrefix(name, f.prefix); ok {
			return f.own + rest + "}"
		}
	}
	for _, f := range []struct{ prefix, own string }{
		{"http_", "{http.request.header."}, {"upstream_http_", "{http.upstream.header."},
	} {
		if rest, ok := strings.CutPrefix(name, f.prefix); ok {
			return f.own + strings.ReplaceAll(rest, "_", "-") + "}"
		}
	}
	return ""
}
