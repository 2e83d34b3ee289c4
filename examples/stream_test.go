// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// What a client is told that connects to a listener of an example, where that
// needs no server behind it.
var greetings = map[string]map[string]string{
	"stream-proxy-protocol": {":7000": "hello 127.0.0.1, 1 of at most 10 sessions\n"},
}

func TestTheListenersOfStreamExamplesTakeConnections(t *testing.T) {
	for _, path := range find(t, ".") {
		adapted := check(t, path)
		var config struct {
			Apps struct {
				Stream struct {
					Servers map[string]struct{ Listen []string }
				}
			}
		}
		if err := json.Unmarshal(adapted, &config); err != nil {
			t.Fatal(err)
		}
		if len(config.Apps.Stream.Servers) == 0 {
			continue
		}
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			text, ports := exchangePorts(untrusted(t, adapted))
			c := testnet.StartCaddy(t, text, nil)
			for _, s := range config.Apps.Stream.Servers {
				for _, listen := range s.Listen {
					if strings.HasPrefix(listen, "udp/") {
						continue
					}
					_, port, _ := net.SplitHostPort(listen)
					conn, err := net.Dial("tcp", c.Addr(ports[port]))
					if err != nil {
						t.Errorf("%s: %v", listen, err)
						continue
					}
					want := greetings[filepath.Dir(path)][listen]
					got := make([]byte, len(want))
					_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
					if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
						t.Errorf("%s says %q, %v, want %q", listen, got, err, want)
					}
					conn.Close()
				}
			}
			c.StopGracefully(10 * time.Second)
		})
	}
}
