// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// oneConn is a listener of one connection.
type oneConn struct {
	net.Listener
	c net.Conn
}

func (l oneConn) Accept() (net.Conn, error) { return l.c, nil }

func TestAPROXYHeaderIsTakenFromTheConnectionHoweverItArrives(t *testing.T) {
	const header = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x24\xc0\x00\x02\x07\xc0\x00\x02\x08\x04\x57\x08\xae" +
		"\x02\x00\x04host" + "\x20\x00\x0e\x01\x00\x00\x00\x00" + "\x21\x00\x06TLSv1x"
	for _, size := range []int{1, 7, 1000} {
		client, server := net.Pipe()
		c, err := (&Connections{ProxyProtocol: true, Count: true}).WrapListener(oneConn{c: server}).Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for rest := header + "GET"; rest != ""; {
				n := min(size, len(rest))
				_, _ = io.WriteString(client, rest[:n])
				rest = rest[n:]
			}
			client.Close()
		}()
		if got, err := io.ReadAll(c); err != nil || string(got) != "GET" {
			t.Errorf("in pieces of %d: read %q, %v, want GET", size, got, err)
		}
		r := &http.Request{ProtoMajor: 1}
		st := &state{r: r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, c.LocalAddr()))}
		st.join()
		for name, want := range map[string]string{
			"proxy_protocol_addr": "192.0.2.7", "proxy_protocol_port": "1111", "proxy_protocol_server_port": "2222", "connection_requests": "1",
			"proxy_protocol_tlv_authority": "host", "proxy_protocol_tlv_0x2": "host", "proxy_protocol_tlv_ssl_version": "TLSv1x",
			"proxy_protocol_tlv_ssl_verify": "0", "proxy_protocol_tlv_alpn": "", "request_length": "3",
		} {
			got := ""
			if f := builtinOf(name); f != nil {
				got = f(st)
			}
			if got != want {
				t.Errorf("in pieces of %d: $%s = %q, want %q", size, name, got, want)
			}
		}
	}
}

// builtinOf is the value of a variable without the rest of a request.
func builtinOf(name string) func(*state) string {
	if f := connVariables[name]; f != nil {
		return f
	}
	return func(st *state) string { v, _ := proxyTLV(st, name[len("proxy_protocol_tlv_"):]); return v }
}

func TestALimitIsInWholeSecondsWithPausesAfterEachPiece(t *testing.T) {
	start := time.Unix(1000, 400e6)
	p := &pace{rate: 100, after: 50, start: start}
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	for _, step := range []struct {
		at      float64
		allowed int64
		wait    time.Duration
		take    int64
	}{
		{0, 150, 0, 40},                        // before the limit holds there is no pause
		{0, 110, 0, 60},                        // of which 50 are paced
		{0.1, 0, 400 * time.Millisecond, 0},    // half a second for them
		{0.5, 50, 0, 50},                       // what is left of the first second
		{0.59, 0, 410 * time.Millisecond, 0},   // a pause for each piece
		{1.1, 100, 0, 100},                     // the next second of the clock
		{2.2, 100, 0, 0},                       // what was not used is there later
		{3.3, 200, 0, 200}, {5.31, 200, 0, 10}, // and so on
	} {
		allowed, wait := p.allowed(at(step.at))
		if allowed != step.allowed || wait != step.wait {
			t.Errorf("at %v: allowed %d, wait %v, want %d, %v", step.at, allowed, wait, step.allowed, step.wait)
		}
		if step.take > 0 {
			p.took(step.take, at(step.at))
		}
	}
	p = &pace{rate: 10, start: start, moved: 25}
	if n, wait := p.allowed(start); n != 0 || wait != 1501*time.Millisecond {
		t.Errorf("too much has gone: allowed %d, wait %v, want 0, 1.501s", n, wait)
	}
}
