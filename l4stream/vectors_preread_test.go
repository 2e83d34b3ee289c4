// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"encoding/hex"
	"io"
	"net"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

type prereadStep struct {
	Chunks []string `json:"chunks_hex"`
	Then   string   `json:"then"`
}

type prereadWant struct {
	Result     string
	ServerName string `json:"server_name"`
	ALPN       string
	Protocol   string
	Status     int
}

// One server tells what it found; what follows the hello goes nowhere.
func TestClientHellosAreReadAsNginxReadsThem(t *testing.T) {
	c := testnet.StartCaddy(t, config(nil, []string{server(0, `127.0.0.1:{{port "front"}}`,
		"ssl_preread", "preread_timeout 300ms", "preread_buffer_size 16KiB",
		`return "decided|{stream.ssl_preread_server_name}|{stream.ssl_preread_alpn_protocols}|{stream.ssl_preread_protocol}"`)}), nil)
	for _, v := range vectors(t, "preread", 60) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			var steps []prereadStep
			decode(t, v.Steps, &steps)
			var want prereadWant
			decode(t, v.Expected, &want)
			client, err := net.Dial("tcp", c.Addr("front"))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			send(t, client, steps[0])
			_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
			got, err := io.ReadAll(client)
			if err != nil && !testnet.Broken(err) { // a reset: there was unread data
				t.Fatal(err)
			}
			text := ""
			if want.Result == "decided" {
				text = "decided|" + latin1(want.ServerName) + "|" + latin1(want.ALPN) + "|" + want.Protocol
			}
			if string(got) != text {
				t.Errorf("the answer is %q, want %q", got, text)
			}
			if l := session(t, c, 0, portOf(client)); status(l) != want.Status {
				t.Errorf("status %d, want %d", status(l), want.Status)
			}
		})
	}
}

func send(t *testing.T, c net.Conn, s prereadStep) {
	t.Helper()
	for i, text := range s.Chunks {
		chunk, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			time.Sleep(12 * time.Millisecond) // as in the recording
		}
		_, _ = c.Write(chunk) // the other side may have decided already
	}
	if s.Then == "eof" {
		_ = c.(*net.TCPConn).CloseWrite()
	}
}

// latin1 turns the recording's text into bytes.
func latin1(s string) string {
	var b []byte
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}
