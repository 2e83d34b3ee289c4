// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// The cases in testdata/next_upstream.json were recorded from nginx 1.31.5: one
// request to servers that fail in some way, and then twice as many as there are
// servers while all of them answer. They run here through all of Caddy, with
// the options keepalive_stale fail and single_counts_down on.

// nextCase is a recorded case.
type nextCase struct {
	Name, Kind string
	Config     struct {
		Servers []struct {
			Label, Behaviour string
			Backup, Down     bool
		}
		NextUpstream        string `json:"next_upstream"`
		NextUpstreamTries   int    `json:"next_upstream_tries"`
		NextUpstreamTimeout string `json:"next_upstream_timeout"`
		RequestBuffering    *bool  `json:"request_buffering"`
		BodySent            string `json:"body_sent"`
	}
	Steps []struct {
		Op, Method, Body string
		N                int
	}
	Expected struct {
		Status         int
		UpstreamAddr   string           `json:"upstream_addr"`
		UpstreamStatus string           `json:"upstream_status"`
		ServedBy       string           `json:"served_by"`
		CountedFailure map[string]*bool `json:"counted_failure"`
		ProbePicks     []string         `json:"probe_picks"`
		Body           *string
		BodyComplete   bool `json:"body_complete"`
	}

	group   string
	probing atomic.Bool
	servers map[string]*testnet.Backend
}

const (
	http09     = "nginx passes an answer without a status line on as HTTP/0.9; here it is an invalid_header, 502"
	withHeader = "nginx takes a body that came together with the header for buffered; with buffering off here it never is"
)

// nextLeftOut are the cases that cannot be as recorded here, and why.
var nextLeftOut = map[string]string{
	"nu 564: GET http09+ok [off]":      http09,
	"nu 565: POST http09+ok [default]": http09,
	"nu 566: POST http09+ok [all]":     http09,
	"nu 568: PUT http09+ok [default]":  http09,
	"nu 569: PUT http09+ok [all]":      http09,
	"nu 570: PUT http09+ok [off]":      http09,
	"nu 616: POST http09 [error]":      http09,

	`nu 976: POST refuse+ok [all] {"request_buffering": false}`:                  withHeader,
	`nu 987: PUT refuse+ok [all] {"request_buffering": false}`:                   withHeader,
	`nu 1005: POST close+ok [all] {"request_buffering": false}`:                  withHeader,
	`nu 1006: POST close+ok [all non_idempotent] {"request_buffering": false}`:   withHeader,
	`nu 1016: PUT close+ok [all] {"request_buffering": false}`:                   withHeader,
	`nu 1017: PUT close+ok [all non_idempotent] {"request_buffering": false}`:    withHeader,
	`nu 1034: POST s500+ok [all] {"request_buffering": false}`:                   withHeader,
	`nu 1035: POST s500+ok [all non_idempotent] {"request_buffering": false}`:    withHeader,
	`nu 1063: POST s404+ok [all] {"request_buffering": false}`:                   withHeader,
	`nu 1064: POST s404+ok [all non_idempotent] {"request_buffering": false}`:    withHeader,
	`nu 1074: PUT s404+ok [all] {"request_buffering": false}`:                    withHeader,
	`nu 1092: POST timeout+ok [all] {"request_buffering": false}`:                withHeader,
	`nu 1093: POST timeout+ok [all non_idempotent] {"request_buffering": false}`: withHeader,
	`nu 1103: PUT timeout+ok [all] {"request_buffering": false}`:                 withHeader,
}

// slower is the factor by which times are longer than those recorded, for
// machines that are busy.
const slower = 5

// behave is what the server does.
func (c *nextCase) behave(label, behaviour string) testnet.Answer {
	from := "X-From: " + label
	plain := testnet.Answer{Header: []string{from}, Body: "from " + label}
	if c.probing.Load() {
		return plain
	}
	switch behaviour {
	case "close":
		return testnet.CloseUnanswered
	case "reset":
		return testnet.ResetUnanswered
	case "timeout":
		return testnet.Silent
	case "malformed":
		return testnet.Answer{Raw: "HTTP/1.1 200 OK\r\nX-Bad\x01Name: 1\r\nContent-Length: 5\r\n\r\nhello"}
	case "bighdr":
		return testnet.Answer{Raw: "HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 9000) + "\r\nContent-Length: 5\r\n\r\nhello"}
	case "partial_header":
		return testnet.PartialHeader
	case "short_body":
		return testnet.Answer{Raw: "HTTP/1.1 200 OK\r\n" + from + "\r\nContent-Length: 100\r\n\r\nhello", Then: testnet.Close}
	case "ok", "refuse":
		return plain
	}
	status, err := strconv.Atoi(strings.TrimPrefix(behaviour, "s"))
	if err != nil {
		panic("unknown behaviour " + behaviour)
	}
	plain.Status = status
	return plain
}

// add starts the servers of the case and configures its group and route.
func (c *nextCase) add(t *testing.T, s *stack, i int) {
	c.group = fmt.Sprintf("g%d", i)
	c.servers = map[string]*testnet.Backend{}
	var servers []any
	silent := false
	for _, x := range c.Config.Servers {
		b := testnet.NewBackendFunc(t, func(testnet.Request) testnet.Answer { return c.behave(x.Label, x.Behaviour) })
		if x.Behaviour == "refuse" {
			b.Stop()
		}
		silent = silent || x.Behaviour == "timeout"
		c.servers[x.Label] = b
		servers = append(servers, object{
			"address": b.Addr(), "backup": x.Backup, "down": x.Down, "fail_timeout": "600s",
		})
	}
	s.groups[c.group] = object{
		"servers": servers, "single_counts_down": true,
		"keepalive": object{"connections": 0},
	}
	inner := object{"protocol": "upstream_keepalive", "response_header_limit": 4096}
	if silent {
		inner["read_timeout"] = slower * 120 * time.Millisecond
	}
	next := object{"transport": inner, "tries": c.Config.NextUpstreamTries}
	if conditions := c.Config.NextUpstream; conditions != "default" {
		next["conditions"] = strings.Fields(conditions)
	}
	if limit := c.Config.NextUpstreamTimeout; limit != "" {
		if silent { // two of them are just within the limit
			inner["read_timeout"] = slower * 100 * time.Millisecond
		}
		d, err := time.ParseDuration(limit)
		if err != nil {
			t.Fatal(err)
		}
		next["timeout"] = slower * d
	}
	if on := c.Config.RequestBuffering; on != nil && !*on {
		next["request_buffering"] = "off"
	}
	s.route("/"+c.group, c.group, next, nil)
}

func TestNextUpstreamAsNginxHasIt(t *testing.T) {
	var cases []*nextCase
	readVectors(t, "testdata/next_upstream.json", &cases)
	s := newStack()
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.Name
		if nextLeftOut[c.Name] == "" {
			c.add(t, s, i)
		}
	}
	s.run(t)
	eachRecorded(t, names, nextLeftOut, 648, 21, func(t *testing.T, i int) { cases[i].replay(t, s) })
}

func (c *nextCase) replay(t *testing.T, s *stack) {
	request, probe, want := c.Steps[0], c.Steps[1], c.Expected
	var pause time.Duration
	if c.Config.BodySent != "" {
		pause = 50 * time.Millisecond
	}
	a := s.ask(t, request.Method, "/"+c.group+"/", request.Body, pause)
	if a.Status != want.Status || a.From != want.ServedBy {
		t.Errorf("the client got %d from %q, want %d from %q", a.Status, a.From, want.Status, want.ServedBy)
	}
	if want.Body != nil && (a.Body != *want.Body || a.Complete != want.BodyComplete) {
		t.Errorf("body %q, complete: %v, want %q, %v", a.Body, a.Complete, *want.Body, want.BodyComplete)
	}
	if got := labels(a.Addr, c.group, c.servers); got != want.UpstreamAddr {
		t.Errorf("upstream_addr %s, want %s", got, want.UpstreamAddr)
	}
	if got := strings.ReplaceAll(a.Statuses, " ", ""); got != want.UpstreamStatus {
		t.Errorf("upstream_status %s, want %s", got, want.UpstreamStatus)
	}
	for i, server := range groupState(t, c.group).Servers {
		label := c.Config.Servers[i].Label
		counted := want.CountedFailure[label]
		if got := server.State.State == "unhealthy"; counted != nil && !server.Down && got != *counted {
			t.Errorf("a failure of %s was counted: %v, want %v", label, got, *counted)
		}
		if server.State.Conns != 0 {
			t.Errorf("%s has %d requests in progress, want none", label, server.State.Conns)
		}
	}
	c.probing.Store(true)
	for _, b := range c.servers {
		if b.Stopped() {
			b.Restart()
		}
	}
	var picks []string
	for range probe.N {
		a := s.ask(t, probe.Method, "/"+c.group+"/", "", 0)
		picks = append(picks, labels(a.Addr, c.group, c.servers))
	}
	if !slices.Equal(picks, want.ProbePicks) {
		t.Errorf("afterwards %v were picked, want %v", picks, want.ProbePicks)
	}
}
