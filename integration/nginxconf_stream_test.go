// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// streamPair is a stream block that must behave the same on nginx and Caddy.
// B0 and B1 are line backends, T0 and T1 TLS servers that name themselves, U0
// and U1 UDP servers that echo, DEAD refuses.
type streamPair struct {
	name   string
	stream string // FRONT is the address of its server
	asks   []string
}

// An ask: "line TEXT" sends a line, "raw TEXT" sends TEXT and reads to the end,
// "sni NAME" makes a TLS handshake, "udp TEXT" sends a datagram.
var streamPairs = []streamPair{
	{"sessions go to the servers in turn", `upstream app { server B0 weight=2; server B1; } server { listen FRONT; proxy_pass app; access_log DIR/s.log pair; }`,
		slices.Concat(repeated("line hello", 6))},
	{"a server that refuses is skipped", `upstream app { server DEAD; server B0; } server { listen FRONT; proxy_pass app; access_log DIR/s.log pair; }`,
		repeated("line x", 3)},
	{"nobody is left", `upstream app { server DEAD; server DEAD; } server { listen FRONT; proxy_pass app; access_log DIR/s.log pair; }`,
		repeated("raw x", 2)},
	{"a single server that refuses", `server { listen FRONT; proxy_pass DEAD; access_log DIR/s.log pair; }`, repeated("raw x", 2)},
	{"next upstream switched off", `upstream app { server DEAD max_fails=0; server B0; } server { listen FRONT; proxy_next_upstream off; proxy_pass app; access_log DIR/s.log pair; }`,
		[]string{"line x", "raw x"}},
	{"hash consistent by address", `upstream app { hash $remote_addr consistent; server B0; server B1; } server { listen FRONT; proxy_pass app; }`,
		repeated("line x", 3)},
	{"return with variables", `map $remote_addr $m { default none; ~^(\d+)\. "first $1"; } geo $g { default out; 127.0.0.0/8 loop; } split_clients key $s { 50% one; * two; } server { listen FRONT; set $v "set $g"; return "$m $g $s $v $protocol $remote_addr\n"; access_log DIR/s.log pair; }`,
		[]string{"raw "}},
	{"deny and allow", `server { listen FRONT; deny 127.0.0.1; proxy_pass B0; access_log DIR/s.log pair; }`, []string{"raw x"}},
	{"a PROXY header is sent", `server { listen FRONT; proxy_protocol on; set $port $remote_port; proxy_pass B0; }`, []string{"proxy hello"}},
	{"a PROXY header is read", `server { listen FRONT proxy_protocol; set_real_ip_from 127.0.0.1; return "$remote_addr $proxy_protocol_addr $proxy_protocol_port $realip_remote_addr\n"; access_log DIR/s.log pair; }`,
		[]string{"raw PROXY TCP4 192.0.2.7 192.0.2.8 1111 2222\r\n", "raw nonsense that is no header\r\n"}},
	{"SNI chooses the server through a map", `map $ssl_preread_server_name $to { hostnames; a.example one; *.b.example two; default T1; } upstream one { server T0; } upstream two { server T1; } server { listen FRONT; ssl_preread on; proxy_pass $to; access_log DIR/s.log sni; }`,
		[]string{"sni a.example", "sni x.b.example", "sni other.example"}},
	{"TLS and other protocols share a port, by a map of a map", `map $ssl_preread_server_name $name { hostnames; a.example one; default T1; } map $ssl_preread_protocol $to { default $name; "" B0; } upstream one { server T0; } server { listen FRONT; ssl_preread on; proxy_pass $to; }`,
		[]string{"sni a.example", "sni other.example", "line hello"}},
	{"an idle session ends", `server { listen FRONT; proxy_timeout 200ms; proxy_pass B0; access_log DIR/s.log pair; }`, []string{"idle x"}},
	{"datagrams go to the servers in turn", `upstream app { server U0; server U1; } server { listen FRONT udp; proxy_responses 1; proxy_pass app; }`,
		repeated("udp hello", 4)},
}

func TestAStreamBlockBehavesTheSameOnCaddy(t *testing.T) {
	for _, p := range streamPairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}

func (p *streamPair) run(t *testing.T) {
	testnet.Need(t, "nginx")
	dir := t.TempDir()
	values := []string{"DEAD", testnet.RefusedAddr(t), "DIR", dir}
	names := map[string]string{}
	add := func(name, addr string) {
		values = append(values, name, addr)
		_, port, _ := net.SplitHostPort(addr)
		names[port] = name
	}
	for i := range 2 {
		add(fmt.Sprintf("B%d", i), testnet.NewLines(t, "").Addr())
		add(fmt.Sprintf("T%d", i), tlsNamed(t, fmt.Sprintf("T%d", i)))
		u := testnet.NewUDP(t, nil)
		add(fmt.Sprintf("U%d", i), u.Addr())
	}
	text := strings.NewReplacer(values...).Replace(`# caddy-upstream: nginx 1.22
events {}
stream {
	log_format pair '$status $protocol $bytes_sent $bytes_received [$upstream_addr] $upstream_bytes_sent';
	log_format sni '$status "$ssl_preread_server_name" [$upstream_addr]';
	access_log DIR/empty.log pair if=$status;
	` + p.stream + `
}
`)
	readable := func(s string) string {
		for port, name := range names {
			s = strings.ReplaceAll(s, port, name)
		}
		return s
	}
	log := filepath.Join(dir, "s.log")
	udp := strings.Contains(p.stream, "udp")
	port := `{{addr "front"}}`
	if udp {
		port = `{{udpaddr "front"}}`
	}
	n := testnet.StartNginx(t, strings.ReplaceAll(text, "FRONT", port), nil)
	want := p.ask(t, n.Addr("front"), log, readable)
	if err := os.Rename(log, filepath.Join(dir, "nginx.log")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	front := testnet.Reserve(t).Addr()
	c := startAdapted(t, strings.ReplaceAll(text, "FRONT", front), dir)
	if !udp { // as the harness did on nginx
		conn, err := net.Dial("tcp", front)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	got := p.ask(t, front, log, readable)
	c.Kill()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nginx - caddy +\n%s\n%s", diff, text)
	}
}

// ask does what the pair asks for, and returns what came, with the log.
func (p *streamPair) ask(t *testing.T, addr, log string, readable func(string) string) []string {
	t.Helper()
	logged := func(n int) {
		testnet.Eventually(t, 10*time.Second, "the lines of the log", func() bool {
			text, _ := os.ReadFile(log)
			return strings.Count(string(text), "\n") == n
		})
	}
	writes := strings.Contains(p.stream, "DIR/s.log")
	if writes {
		logged(1) // of the harness
	}
	if strings.Contains(p.stream, "udp") { // once around the servers
		testnet.Eventually(t, 10*time.Second, "the first answer", func() bool { return askOnce(t, "udp", "x", addr) != "" })
		askOnce(t, "udp", "x", addr)
	}
	var out []string
	for i, ask := range p.asks {
		kind, text, _ := strings.Cut(ask, " ")
		out = append(out, ask+" -> "+readable(askOnce(t, kind, text, addr)))
		if writes {
			logged(i + 2)
		}
	}
	if writes {
		text, _ := os.ReadFile(log)
		out = append(out, readable(string(text)))
	}
	return out
}

func askOnce(t *testing.T, kind, text, addr string) string {
	t.Helper()
	if kind == "sni" {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: text})
		if err != nil {
			return "error"
		}
		defer c.Close()
		got, _ := io.ReadAll(c)
		return string(got)
	}
	network := "tcp"
	if kind == "udp" {
		network = "udp"
	}
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		return "refused"
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	end := ""
	if kind == "line" || kind == "proxy" || kind == "idle" {
		end = "\n"
	}
	_, _ = io.WriteString(c, text+end)
	buf := make([]byte, 4096)
	switch kind {
	case "raw", "idle":
		got, _ := io.ReadAll(c)
		return string(got)
	case "proxy": // the header comes back as a line of its own, with our port
		n, _ := io.ReadAtLeast(c, buf, len("00000 PROXY TCP4 127.0.0.1 127.0.0.1 10000 10000\r\n00000 HELLO\n"))
		_, port, _ := net.SplitHostPort(c.LocalAddr().String())
		_, front, _ := net.SplitHostPort(addr)
		return strings.NewReplacer(port, "CLIENT", front, "FRONT").Replace(string(buf[:n]))
	}
	n, _ := c.Read(buf)
	return string(buf[:n])
}

// tlsNamed is a TLS server that says its name.
func tlsNamed(t *testing.T, name string) string {
	t.Helper()
	cert, _, _ := newAuthority(t).issue(name)
	s := testnet.NewTCP(t, func(c net.Conn, _ int) {
		conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		_, _ = io.WriteString(conn, name)
		_ = conn.Close()
	})
	return s.Addr()
}
