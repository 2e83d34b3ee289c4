// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// stickyCase is a case of modules/sticky/testdata/sticky.json, recorded from
// nginx 1.31.5. It runs here through all of Caddy.
type stickyCase struct {
	Name, Kind string
	Config     struct {
		Servers []struct {
			Label, Route        string
			Weight              int
			MaxFails            *int   `json:"max_fails"`
			FailTimeout         string `json:"fail_timeout"`
			Backup, Down, Drain bool
			Refuses             bool `json:"refuses_connections"`
		}
		Method, Sticky string
		NextUpstream   string `json:"next_upstream"`
	}
	Steps []struct {
		Args     map[string]string
		Requests []stickyRequest
	}
	Expected struct {
		Results   [][]any
		SetCookie string `json:"set_cookie"`
	}

	group  string
	addrs  map[string]string // by label
	labels map[string]string // by address, and the first by sid
}

type stickyRequest struct {
	Hint           *string
	R              string
	CookieR        string `json:"cookie_r"`
	Lookup, Create string
	K              string
}

// inCaddy translates nginx's variables and its plain numbers of seconds.
func inCaddy(text string) string {
	text = regexp.MustCompile(`\$upstream_cookie_(\w+)`).ReplaceAllString(text, "{http.upstream.cookie.$1}")
	text = regexp.MustCompile(`\$cookie_(\w+)`).ReplaceAllString(text, "{http.request.cookie.$1}")
	text = regexp.MustCompile(`\$arg_(\w+)`).ReplaceAllString(text, "{http.request.uri.query.$1}")
	return regexp.MustCompile(`expires=(\d+)( |$)`).ReplaceAllString(text, "expires=${1}s$2")
}

// lines are the lines of the case's group.
func (c *stickyCase) lines(t *testing.T) []string {
	lines := []string{"single_counts_down on", "sticky " + inCaddy(c.Config.Sticky)}
	switch c.Config.Method {
	case "hash":
		lines = append(lines, "hash {http.request.uri.query.k}")
	case "least_conn":
		lines = append(lines, "least_conn")
	}
	return append(lines, c.servers(t)...)
}

// upstream is the case's group as a block of nginx.conf.
func (c *stickyCase) upstream(t *testing.T) string {
	method := map[string]string{"hash": "hash $arg_k;", "least_conn": "least_conn;"}[c.Config.Method]
	text := "\tupstream " + c.group + " {\n\t\tkeepalive 0;\n\t\t" + method + "\n"
	for _, line := range c.servers(t) {
		text += "\t\tserver " + line + ";\n"
	}
	return text + "\t\tsticky " + c.Config.Sticky + ";\n\t}\n"
}

// servers starts the servers of the case and returns the lines for them.
func (c *stickyCase) servers(t *testing.T) (lines []string) {
	c.addrs, c.labels = map[string]string{}, map[string]string{c.group: "@"}
	if c.Config.Servers == nil { // of kind set_cookie
		lines = append(lines, testnet.NewBackend(t, named("a")).Addr()+" route=one")
	}
	for _, s := range c.Config.Servers {
		addr := ""
		if s.Refuses {
			addr = testnet.RefusedAddr(t)
		} else {
			addr = testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
				a := named(s.Label)
				if id := r.Get("X-Create"); id != "" {
					a.Header = []string{"Set-Cookie: s=" + id}
				}
				return a
			}).Addr()
		}
		line := addr
		for flag, set := range map[string]bool{"backup": s.Backup, "down": s.Down, "drain": s.Drain} {
			if set {
				line += " " + flag
			}
		}
		if s.Weight > 0 {
			line += fmt.Sprint(" weight=", s.Weight)
		}
		if s.MaxFails != nil {
			line += fmt.Sprint(" max_fails=", *s.MaxFails)
		}
		if s.FailTimeout != "" {
			line += " fail_timeout=" + s.FailTimeout
		}
		if s.Route != "" {
			line += " route=" + s.Route
		}
		lines = append(lines, line)
		label := cmp.Or(s.Label, "a")
		c.addrs[label], c.labels[addr] = addr, label
		if sid := cmp.Or(s.Route, peer.Digest(addr, "")); c.labels[sid] == "" {
			c.labels[sid] = label
		}
	}
	return lines
}

// sid is the sid of a server.
func (c *stickyCase) sid(label string) string {
	for i, s := range c.Config.Servers {
		if s.Label == label && s.Route != "" {
			return c.Config.Servers[i].Route
		}
	}
	return peer.Digest(c.addrs[label], "")
}

// getter gets a target.
type getter func(target string, header ...string) testnet.Response

// ask sends one request of the case and returns what came of it as recorded.
func (c *stickyCase) ask(get getter, r stickyRequest) []any {
	var header, cookies []string
	if r.Hint != nil {
		value, literal := strings.CutPrefix(*r.Hint, "?")
		if !literal {
			value = c.sid(value)
		}
		cookies = append(cookies, "sid="+value)
	}
	value := func(v string) string {
		if label, ok := strings.CutPrefix(v, "@sid:"); ok {
			return c.sid(label)
		}
		return v
	}
	if r.CookieR != "" {
		cookies = append(cookies, "r="+value(r.CookieR))
	}
	if r.Lookup != "" {
		cookies = append(cookies, "s="+r.Lookup)
	}
	if cookies != nil {
		header = append(header, "Cookie: "+strings.Join(cookies, "; "))
	}
	if r.Create != "" {
		header = append(header, "X-Create: "+r.Create)
	}
	res := get(fmt.Sprintf("/%s?r=%s&k=%s", c.group, value(r.R), r.K), header...)
	tries := ""
	for _, addr := range strings.Split(res.Get("X-Tries"), ", ") {
		tries += c.labels[addr]
	}
	result := []any{float64(res.Status), tries}
	if c.Kind == "cookie" {
		var of any
		if set := res.Get("Set-Cookie"); set != "" {
			of = c.labels[strings.TrimPrefix(set, "sid=")]
		}
		result = append(result, of)
	}
	return result
}

func stickyCases(t *testing.T) []*stickyCase {
	raw, err := os.ReadFile(filepath.Join("..", "modules", "sticky", "testdata", "sticky.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all, cases []*stickyCase
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Kind != "digest" { // the engine's
			c.group = fmt.Sprint("g", len(cases))
			cases = append(cases, c)
		}
	}
	if len(all) != 65 || len(cases) != 46 {
		t.Errorf("%d cases, %d of them to run, want 65 and all but 19 digests", len(all), len(cases))
	}
	return cases
}

func TestStickySessionsRecordedFromNginxComeOutTheSameThroughTheWholeStack(t *testing.T) {
	t.Parallel()
	cases := stickyCases(t)
	var groups, site strings.Builder
	for _, c := range cases {
		groups.WriteString(group(c.group, c.lines(t)...))
		fmt.Fprintf(&site, "\tproxy_pass /%s %s {\n\t\theader_down X-Tries {http.upstream.addr}\n", c.group, c.group)
		if c.Config.NextUpstream == "off" {
			site.WriteString("\t\tnext_upstream off\n")
		}
		site.WriteString("\t}\n")
	}
	site.WriteString("\thandle_errors {\n\t\theader X-Tries {http.upstream.addr}\n\t\trespond {err.status_code} {err.status_code}\n\t}\n")
	p := serve(t, groups.String(), site.String())
	for _, c := range cases {
		c.check(t, p.get)
	}
}

func TestStickySessionsRecordedFromNginxComeOutTheSameFromAnNginxConfiguration(t *testing.T) {
	t.Parallel()
	cases := stickyCases(t)
	var groups, locations strings.Builder
	for _, c := range cases {
		groups.WriteString(c.upstream(t))
		fmt.Fprintf(&locations, "\t\tlocation /%s { proxy_pass http://%s; add_header X-Tries $upstream_addr always; ", c.group, c.group)
		if c.Config.NextUpstream == "off" {
			locations.WriteString("proxy_next_upstream off; ")
		}
		locations.WriteString("}\n")
	}
	front := testnet.Reserve(t).Addr()
	startAdapted(t, "events {}\nhttp {\n"+groups.String()+"\tserver {\n\t\tlisten "+front+";\n"+locations.String()+"\t}\n}\n", t.TempDir())
	for _, c := range cases {
		c.check(t, func(target string, header ...string) testnet.Response {
			return testnet.Get(t, "http://"+front+target, header...)
		})
	}
}

// check sends the requests of the case.
func (c *stickyCase) check(t *testing.T, get getter) {
	t.Helper()
	if c.Kind == "set_cookie" {
		c.checkCookie(t, get)
		return
	}
	for i, r := range c.Steps[0].Requests {
		if diff := gocmp.Diff(c.Expected.Results[i], c.ask(get, r)); diff != "" {
			t.Errorf("%s: request %d %+v (-want +got):\n%s", c.Name, i, r, diff)
			return
		}
	}
}

var expiryDate = regexp.MustCompile(`expires=\w{3}, \d\d-\w{3}-\d\d \d\d:\d\d:\d\d GMT`)

func (c *stickyCase) checkCookie(t *testing.T, get getter) {
	target := "/" + c.group + "?"
	for name, value := range c.Steps[0].Args {
		target += name + "=" + value + "&"
	}
	got, want := get(target).Get("Set-Cookie"), c.Expected.SetCookie
	if strings.Contains(want, "<now") { // the date is checked where the clock can be set
		got = expiryDate.ReplaceAllString(got, "expires=<date>")
		want = regexp.MustCompile(`<now\+\d+>`).ReplaceAllString(want, "<date>")
	}
	if got != want {
		t.Errorf("%s: Set-Cookie\n got %s\nwant %s", c.Name, got, want)
	}
	if strings.Contains(got, "127.0.0.1") {
		t.Errorf("%s: %s shows an address", c.Name, got)
	}
}
