// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

type proxyStep struct {
	Op     string
	Client string
	Send   string `json:"send_hex"`
}

type proxyWant struct {
	Backend   string   `json:"backend_hex"`
	Datagrams []string `json:"backend_datagrams_hex"`
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// proxyCase is a case of kind proxy_protocol with its own backend. Ports and
// paths are not those of the recording.
type proxyCase struct {
	v       vector
	tcp     chan []byte // what came in a connection
	udp     *testnet.UDP
	network string
	port    string // in the configuration's template
	path    string
}

func newProxyCase(t *testing.T, i int, v vector, dir string) (*proxyCase, string) {
	pc := &proxyCase{v: v, tcp: make(chan []byte, 1), network: "tcp", port: fmt.Sprintf("p%d", i)}
	listen := fmt.Sprintf(`127.0.0.1:{{port %q}}`, pc.port)
	to := ""
	switch {
	case strings.HasSuffix(v.Config.Listen, " udp"):
		pc.network = "udp"
		listen = "udp/" + listen
		pc.udp = testnet.NewUDP(t, func(testnet.Datagram) [][]byte { return nil })
		to = pc.udp.Addr()
	case strings.HasPrefix(v.Config.Listen, "unix:"):
		pc.network = "unix"
		pc.path = filepath.Join(dir, fmt.Sprintf("%d.sock", i))
		listen = "unix/" + pc.path
	}
	if strings.HasPrefix(v.Config.Listen, "[::1]") {
		listen = strings.Replace(listen, "127.0.0.1", "[::1]", 1)
	}
	if to == "" {
		to = testnet.NewTCP(t, func(c net.Conn, _ int) {
			b, _ := io.ReadAll(c)
			pc.tcp <- b
		}).Addr()
	}
	var lines []string
	if v.Config.ListenProxyProtocol {
		lines = append(lines, "proxy_protocol require")
	}
	if len(v.Config.RealIPTrusted) > 0 {
		lines = append(lines, "realip "+strings.Join(v.Config.RealIPTrusted, " "))
	}
	version := map[string]string{"on": "v1", "v2": "v2"}[v.Config.ProxyProtocol]
	lines = append(lines, fmt.Sprintf("proxy_pass %s {\nproxy_protocol %s\n}", to, version))
	return pc, server(i, listen, lines...)
}

func TestPROXYHeadersAreReadAndWrittenAsByNginx(t *testing.T) {
	dir := t.TempDir()
	var cases []*proxyCase
	var servers []string
	for i, v := range vectors(t, "proxy_protocol", 46) {
		pc, text := newProxyCase(t, i, v, dir)
		cases, servers = append(cases, pc), append(servers, text)
	}
	c := testnet.StartCaddy(t, config(nil, servers), nil)
	for _, pc := range cases {
		t.Run(pc.v.Name, func(t *testing.T) { pc.replay(t, c) })
	}
}

func (pc *proxyCase) replay(t *testing.T, c *testnet.Caddy) {
	var steps []proxyStep
	decode(t, pc.v.Steps, &steps)
	var want proxyWant
	decode(t, pc.v.Expected, &want)
	front := pc.path
	if front == "" {
		front = c.Addr(pc.port)
		if strings.HasPrefix(pc.v.Config.Listen, "[::1]") {
			front = strings.Replace(front, "127.0.0.1", "[::1]", 1)
		}
	}
	client, err := net.Dial(pc.network, front)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ports := renumbering{portIn(pc.v.Config.Listen): portIn(front), portIn(steps[0].Client): portIn(client.LocalAddr().String())}
	for _, s := range steps {
		if _, err := client.Write(unhex(t, s.Send)); err != nil {
			t.Fatal(err)
		}
	}
	if pc.udp != nil {
		testnet.Eventually(t, 10*time.Second, "the datagrams", func() bool { return len(pc.udp.Received()) == len(want.Datagrams) })
		for i, d := range pc.udp.Received() {
			compareHeader(t, d.Data, ports.apply(unhex(t, want.Datagrams[i])))
		}
		return
	}
	_ = client.(interface{ CloseWrite() error }).CloseWrite()
	select {
	case got := <-pc.tcp:
		expected := ports.apply(unhex(t, want.Backend))
		if pc.path != "" {
			expected = bytes.Replace(expected, []byte(pc.v.Config.Listen), []byte("unix:"+pc.path), 1)
		}
		compareHeader(t, got, expected)
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came to the backend")
	}
}

func compareHeader(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("the backend got\n%q\nwant\n%q", got, want)
	}
}

func portIn(address string) string {
	_, port, err := net.SplitHostPort(strings.TrimSuffix(address, " udp"))
	if err != nil {
		return "-" // a unix socket
	}
	return port
}

// renumbering are the ports that stand for those of the recording.
type renumbering map[string]string

// apply exchanges the ports in a header.
func (r renumbering) apply(b []byte) []byte {
	if bytes.HasPrefix(b, []byte("PROXY ")) {
		line, rest, _ := strings.Cut(string(b), "\r\n")
		fields := strings.Fields(line)
		for i, f := range fields {
			if port := r[f]; port != "" && i >= 4 {
				fields[i] = port
			}
		}
		return []byte(strings.Join(fields, " ") + "\r\n" + rest)
	}
	if len(b) < 16 || b[0] != '\r' || b[12] != 0x21 {
		return b
	}
	b = bytes.Clone(b)
	end := 16 + int(binary.BigEndian.Uint16(b[14:]))
	at := 16 + 8
	if b[13]>>4 == 2 {
		at = 16 + 32
	}
	for _, at := range []int{at, at + 2} {
		var port uint16
		if _, err := fmt.Sscan(r[fmt.Sprint(binary.BigEndian.Uint16(b[at:]))], &port); err == nil {
			binary.BigEndian.PutUint16(b[at:], port)
		}
	}
	sum := b[end-4 : end]
	clear(sum)
	binary.BigEndian.PutUint32(sum, crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
