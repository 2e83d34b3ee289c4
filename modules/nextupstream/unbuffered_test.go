// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestABodyThatIsNotBufferedGoesWholeToTheFirstServerThatTakesIt(t *testing.T) {
	s := newStack()
	tests := map[string]func(*testing.T){}
	dead := testnet.NewBackend(t, testnet.Answer{})
	dead.Stop()
	for name, next := range map[string]object{
		"off":      {"request_buffering": "off"},
		"toolarge": {"request_buffer_size": 16, "request_max_temp_file": 64},
	} {
		for _, inner := range []string{"upstream_keepalive", "http"} {
			for _, size := range []int{1, 100, 5000, 300_000} {
				for _, framing := range []string{"length", "chunks"} {
					group := strings.Join([]string{name, inner, fmt.Sprint(size), framing}, "-")
					alive := testnet.NewBackend(t, testnet.Answer{Echo: true})
					s.groups[group] = object{"servers": []any{
						object{"address": dead.Addr()}, object{"address": alive.Addr()},
					}}
					options := object{"transport": object{"protocol": inner}}
					for k, v := range next {
						options[k] = v
					}
					s.route("/"+group, group, options, nil)
					tests[group] = func(t *testing.T) { s.sendsWhole(t, group, size, framing == "chunks") }
				}
			}
		}
	}
	s.run(t)
	for name, test := range tests {
		t.Run(name, test)
	}
}

func (s *stack) sendsWhole(t *testing.T, group string, size int, inChunks bool) {
	body := strings.Repeat("x", size)
	wire, header := body, []string(nil)
	if inChunks {
		wire, header = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body), []string{chunked}
	}
	a := s.ask(t, "POST", "/"+group+"/", wire, 0, header...)
	if a.Status != 200 || a.Body != body {
		t.Errorf("the client got %d and %d bytes, want 200 and its %d bytes", a.Status, len(a.Body), size)
	}
	if got := strings.Count(a.Addr, ","); got != 1 {
		t.Errorf("asked %s, want two servers", a.Addr)
	}
}
