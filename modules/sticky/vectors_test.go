// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package sticky

import (
	stdcmp "cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
	"github.com/caddy-upstream/caddy-upstream/leastconn"
	"github.com/caddy-upstream/caddy-upstream/modules/hash"
	"github.com/caddy-upstream/caddy-upstream/passivehealth"
	"github.com/caddy-upstream/caddy-upstream/smoothrr"
)

// vector is a case of testdata/sticky.json: what a running nginx 1.31.5 did.
type vector struct {
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
		Requests []request
	}
	Expected struct {
		Results      [][]any
		Address, SID string
		SetCookie    string `json:"set_cookie"`
	}
}

type request struct {
	Hint           *string
	R              string
	CookieR        string `json:"cookie_r"`
	Lookup, Create string
	K              string
}

// vectors are the recorded cases of these kinds, of which there have to be n.
func vectors(t *testing.T, n int, kinds ...string) (of []vector) {
	t.Helper()
	raw, err := os.ReadFile("testdata/sticky.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []vector
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if slices.Contains(kinds, c.Kind) {
			of = append(of, c)
		}
	}
	if len(of) != n {
		t.Errorf("%d cases of kind %q, want %d", len(of), kinds, n)
	}
	return of
}

func TestDigestsAreThoseOfNginx(t *testing.T) {
	for _, c := range vectors(t, 19, "digest") {
		if got := peer.Digest(c.Expected.Address, ""); got != c.Expected.SID {
			t.Errorf("%s: Digest(%q) = %s, want %s", c.Name, c.Expected.Address, got, c.Expected.SID)
		}
	}
}

func (v *vector) group(t *testing.T) (g *peer.Group, refuses map[string]bool) {
	cfg := peer.Config{Tracker: new(passivehealth.Tracker), SingleCountsDown: true}
	switch v.Config.Method {
	case "round_robin":
		cfg.Method = smoothrr.Method{}
	case "least_conn":
		cfg.Method = leastconn.Method{}
	case "hash":
		cfg.Method = hash.Plain{}
	default:
		t.Fatalf("method %q", v.Config.Method)
	}
	refuses = map[string]bool{}
	for _, s := range v.Config.Servers {
		server := peer.Server{
			ID: s.Label, Weight: s.Weight, MaxFails: 1, FailTimeout: 10 * time.Second,
			Route: s.Route, Backup: s.Backup, Down: s.Down, Drain: s.Drain,
		}
		if s.MaxFails != nil {
			server.MaxFails = *s.MaxFails
		}
		if s.FailTimeout != "" {
			d, err := time.ParseDuration(s.FailTimeout)
			if err != nil {
				t.Fatal(err)
			}
			server.FailTimeout = d
		}
		refuses[s.Label] = s.Refuses
		cfg.Servers = append(cfg.Servers, server)
	}
	return peertest.Group(t, cfg, peer.Options{}), refuses
}

// TestSessionsRecordedFromNginxComeOutTheSame replays cookie, route and learn.
// What HTTP does to get at the hint is done here in a few lines.
func TestSessionsRecordedFromNginxComeOutTheSame(t *testing.T) {
	for _, c := range vectors(t, 28, "cookie", "route", "learn") {
		t.Run(c.Name, func(t *testing.T) {
			g, refuses := c.group(t)
			sids, labels := map[string]string{}, map[string]string{}
			for _, p := range g.Peers() {
				sids[p.ID()] = p.SID()
				if labels[p.SID()] == "" {
					labels[p.SID()] = p.ID() // the first with that sid
				}
			}
			table := NewTable(1000, 10*time.Minute)
			now := peertest.Start
			for i, r := range c.Steps[0].Requests {
				got := c.request(g, refuses, sids, labels, table, r, now)
				if diff := cmp.Diff(c.Expected.Results[i], got); diff != "" {
					t.Fatalf("request %d %+v (-want +got):\n%s", i, r, diff)
				}
			}
			peertest.Idle(t, g)
		})
	}
}

func (v *vector) request(g *peer.Group, refuses map[string]bool, sids, labels map[string]string, table *Table, r request, now time.Time) []any {
	o := peer.SessionOptions{Key: r.K}
	switch v.Kind {
	case "cookie":
		if r.Hint != nil {
			if lit, ok := strings.CutPrefix(*r.Hint, "?"); ok {
				o.Hint = lit
			} else {
				o.Hint = sids[*r.Hint]
			}
		}
	case "route":
		for _, value := range []string{r.R, r.CookieR} {
			if label, ok := strings.CutPrefix(value, "@sid:"); ok {
				value = sids[label]
			}
			o.Hint = stdcmp.Or(o.Hint, value)
		}
	case "learn":
		if r.Lookup != "" {
			o.Hint, _ = table.Lookup(r.Lookup, now)
		}
	}
	if v.Config.NextUpstream == "off" {
		o.Tries = 1
	}
	ids, last := peertest.Walk(g, o, func(id string) bool { return refuses[id] }, now)
	status := 502.0
	if last != nil {
		last.Done(peer.Success, now)
		status = 200
		if v.Kind == "learn" {
			if id := stdcmp.Or(r.Create, r.Lookup); id != "" {
				table.Learn(id, last.Peer().SID(), r.Create != "", now)
			}
		}
	}
	result := []any{status, strings.Join(ids, "")}
	if v.Kind == "cookie" {
		var cookie any
		for _, id := range ids {
			if id != "@" {
				cookie = labels[sids[id]]
			}
		}
		result = append(result, cookie)
	}
	return result
}

func TestCookiesAreWrittenAsNginxWritesThem(t *testing.T) {
	now := peertest.Start
	for _, c := range vectors(t, 18, "set_cookie") {
		words := strings.Fields(c.Config.Sticky)
		a := Attributes{Name: words[1]}
		var domain, sameSite string
		expand := func(value string) string {
			if name, ok := strings.CutPrefix(value, "$arg_"); ok {
				return c.Steps[0].Args[name]
			}
			return value
		}
		for _, word := range words[2:] {
			switch name, value, _ := strings.Cut(word, "="); name {
			case "expires":
				d := Forever
				if value != "max" {
					if strings.Trim(value, "0123456789") == "" {
						value += "s"
					}
					var err error
					if d, err = time.ParseDuration(value); err != nil {
						t.Fatal(err)
					}
				}
				a.Expires = &d
			case "domain":
				domain = expand(value)
			case "path":
				a.Path = value
			case "httponly":
				a.HTTPOnly = true
			case "secure":
				a.Secure = true
			case "samesite":
				sameSite = SameSite(expand(value))
			default:
				t.Fatalf("%s: attribute %q", c.Name, name)
			}
		}
		want := c.Expected.SetCookie
		for _, seconds := range []string{"0", "3600"} {
			d, _ := time.ParseDuration(seconds + "s")
			want = strings.ReplaceAll(want, "<now+"+seconds+">", now.Add(d).UTC().Format(dateLayout))
		}
		if got := a.Header("one", domain, sameSite, now); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.Name, got, want)
		}
	}
}
