// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
)

type vector struct {
	Name   string
	Config struct {
		Listen              string
		ListenProxyProtocol bool   `json:"listen_proxy_protocol"`
		ProxyProtocol       string `json:"proxy_protocol"`
	}
	Steps []struct {
		Client  string
		SendHex string `json:"send_hex"`
	}
	Expected struct {
		BackendHex       string   `json:"backend_hex"`
		BackendDatagrams []string `json:"backend_datagrams_hex"`
	}
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/proxy_protocol.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	return vs
}

func endpoint(s string) Endpoint {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return Endpoint{Path: path}
	}
	return Endpoint{Addr: netip.MustParseAddrPort(s)}
}

// TestRecordedSessions replays what nginx did with a session: the client's
// header is read, its address taken over (every peer was trusted), and the
// header for the backend written in front of the data.
func TestRecordedSessions(t *testing.T) {
	vs := vectors(t)
	if len(vs) != 46 {
		t.Fatalf("%d recorded sessions, want 46", len(vs))
	}
	for _, v := range vs {
		t.Run(v.Name, func(t *testing.T) {
			step := v.Steps[0]
			listen, udp := strings.CutSuffix(v.Config.Listen, " udp")
			if udp { // the header is in the first datagram only, before its data
				v.Expected.BackendHex = v.Expected.BackendDatagrams[0]
			}
			data, err := hex.DecodeString(step.SendHex)
			if err != nil {
				t.Fatal(err)
			}
			client := endpoint(step.Client)
			if v.Config.ListenProxyProtocol {
				h, n, err := Parse(data)
				if err != nil {
					t.Fatalf("Parse() = %v", err)
				}
				data = data[n:]
				if src, ok := h.Source(); ok {
					client = Endpoint{Addr: src}
				}
			}
			if !udp && string(data) != "DATA" {
				t.Errorf("after the header %q, want DATA", data)
			}
			var got []byte
			if v.Config.ProxyProtocol == "v2" {
				got = AppendV2(nil, client, endpoint(listen), udp, nil)
			} else {
				got = AppendV1(nil, client, endpoint(listen))
			}
			got = append(got, data...)
			if hex.EncodeToString(got) != v.Expected.BackendHex {
				want, _ := hex.DecodeString(v.Expected.BackendHex)
				t.Errorf("to the backend\n%q, want\n%q", got, want)
			}
		})
	}
}
