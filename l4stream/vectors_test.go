// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// The tests in the vectors_* files replay what a running nginx did, through
// the app: testdata/stream.json holds one case a line.

// vector is one case.
type vector struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Config   vectorConfig    `json:"config"`
	Steps    json.RawMessage `json:"steps"`
	Expected json.RawMessage `json:"expected"`
}

// vectorConfig is what a case says of the configuration; each kind uses some.
type vectorConfig struct {
	Servers             []vectorServer `json:"servers"`
	Method              string         `json:"method"`
	Key                 string         `json:"key"`
	HalfClose           bool           `json:"half_close"`
	MaxFails            *int           `json:"max_fails"`
	FailTimeout         string         `json:"fail_timeout"`
	ProxyRequests       *int           `json:"proxy_requests"`
	ProxyResponses      *int           `json:"proxy_responses"`
	ProxyTimeout        string         `json:"proxy_timeout"`
	ReturnText          string         `json:"return_text"`
	Listen              string         `json:"listen"`
	ListenProxyProtocol bool           `json:"listen_proxy_protocol"`
	ProxyProtocol       string         `json:"proxy_protocol"`
	RealIPTrusted       []string       `json:"realip_trusted"`
	PrereadTimeout      string         `json:"preread_timeout"`
	PrereadBufferSize   string         `json:"preread_buffer_size"`
}

type vectorServer struct {
	Server      string `json:"server"` // the address as configured, where it matters
	Label       string `json:"label"`
	Weight      int    `json:"weight"`
	MaxFails    *int   `json:"max_fails"`
	FailTimeout string `json:"fail_timeout"`
	MaxConns    int    `json:"max_conns"`
	Backup      bool   `json:"backup"`
	Down        bool   `json:"down"`
	Refuses     bool   `json:"refuses"`
}

// vectors reads the cases of one kind, of which there have to be n.
func vectors(t *testing.T, kind string, n int) []vector {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "stream.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all, out []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Kind == kind {
			out = append(out, v)
		}
	}
	if len(out) != n {
		t.Fatalf("%d cases of kind %s, want %d", len(out), kind, n)
	}
	return out
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

// line is the server's line in a group, at an address.
func (s *vectorServer) line(address string, c *vectorConfig) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "server %s", address)
	if s.Weight > 0 {
		fmt.Fprintf(b, " weight=%d", s.Weight)
	}
	if n := first(s.MaxFails, c.MaxFails); n != nil {
		fmt.Fprintf(b, " max_fails=%d", *n)
	}
	if d := s.FailTimeout + c.FailTimeout; d != "" {
		fmt.Fprintf(b, " fail_timeout=%s", d)
	}
	if s.MaxConns > 0 {
		fmt.Fprintf(b, " max_conns=%d", s.MaxConns)
	}
	if s.Backup {
		b.WriteString(" backup")
	}
	if s.Down {
		b.WriteString(" down")
	}
	return b.String()
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// server returns the block of a server, numbered i, with an access log.
func server(i int, listen string, lines ...string) string {
	return fmt.Sprintf("server %s {\n%s\naccess_log {\nfield case %d\n}\n}\n", listen, strings.Join(lines, "\n"), i)
}

// config is a Caddyfile of groups and stream servers.
func config(groups, servers []string) string {
	return "{\ndebug\npersist_config off\n" + strings.Join(groups, "\n") + "\nstream {\n" + strings.Join(servers, "\n") + "\n}\n}\n"
}

// sessions are the lines of the access log so far of the server numbered i.
func sessions(c *testnet.Caddy, i int) []testnet.Line {
	var out []testnet.Line
	for _, l := range c.Logs("session") {
		if l.Fields["case"] == fmt.Sprint(i) {
			out = append(out, l)
		}
	}
	return out
}

// session waits for the line of the server's session with a client's port.
func session(t *testing.T, c *testnet.Caddy, i int, port string) testnet.Line {
	t.Helper()
	return c.WaitLine(t, 20*time.Second, "the end of the session", func(l testnet.Line) bool {
		return l.Msg() == "session" && l.Fields["case"] == fmt.Sprint(i) && l.Fields["remote_port"] == port
	})
}

func status(l testnet.Line) int { return int(l.Fields["status"].(float64)) }

func number(l testnet.Line, field string) int { return int(l.Fields[field].(float64)) }

func itoa(n int) string { return strconv.Itoa(n) }
