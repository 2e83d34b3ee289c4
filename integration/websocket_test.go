// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// key is a client's nonce and what a server makes of it (RFC 6455, 1.3).
const key, accept = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

// newWebSocket starts a server that answers each text message in upper case. It
// ends a connection whose client ends its side, after a last word.
func newWebSocket(t *testing.T) *testnet.Server {
	t.Helper()
	return testnet.NewTCP(t, func(c net.Conn, _ int) {
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if !strings.EqualFold(req.Header.Get("Upgrade"), "websocket") || req.Header.Get("Sec-WebSocket-Version") != "13" {
			_, _ = io.WriteString(c, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")
			return
		}
		sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		// The first message comes with the header.
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: %s\r\n\r\n%s", base64.StdEncoding.EncodeToString(sum[:]), frame("hello", false))
		for {
			text, err := message(r)
			if err != nil {
				_, _ = io.WriteString(c, frame("bye", false))
				return
			}
			_, _ = io.WriteString(c, frame(strings.ToUpper(text), false))
		}
	})
}

// frame is a short text message, masked as clients must.
func frame(text string, masked bool) string {
	if !masked {
		return string([]byte{0x81, byte(len(text))}) + text
	}
	mask := []byte{1, 2, 3, 4}
	out := append([]byte{0x81, 0x80 | byte(len(text))}, mask...)
	for i := range len(text) {
		out = append(out, text[i]^mask[i%4])
	}
	return string(out)
}

// message reads one short text message.
func message(r io.Reader) (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	if head[0] != 0x81 {
		return "", fmt.Errorf("opcode %#x", head[0])
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return "", err
		}
	}
	text := make([]byte, head[1]&0x7f)
	_, err := io.ReadFull(r, text)
	for i := range text {
		text[i] ^= mask[i%4]
	}
	return string(text), err
}

// openWebSocket makes a handshake through the proxy and reads the first message.
func openWebSocket(t *testing.T, p *proxy, target string) *testnet.Client {
	t.Helper()
	c := p.dial()
	res, err := c.Do("GET", target, []string{
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key,
	}, nil)
	if err != nil || res.Status != 101 || res.Get("Sec-WebSocket-Accept") != accept {
		t.Fatalf("handshake: %s, accept %q, %v", res.Line, res.Get("Sec-WebSocket-Accept"), err)
	}
	if text, err := message(c.Reader()); text != "hello" || err != nil {
		t.Fatalf("first message %q, %v", text, err)
	}
	return c
}

// say sends a message and expects it back in upper case.
func say(t *testing.T, c *testnet.Client, text string) {
	t.Helper()
	if err := c.Send(frame(text, true)); err != nil {
		t.Fatal(err)
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := message(c.Reader()); got != strings.ToUpper(text) || err != nil {
		t.Fatalf("answer to %q: %q, %v", text, got, err)
	}
}

func TestAWebSocketHoldsItsSlotUntilItEndsHoweverItEnds(t *testing.T) {
	t.Parallel()
	b := newWebSocket(t)
	twoKinds(t, b.Addr(), "", func(t *testing.T, p *proxy, group, prefix string) {
		// The client leaves.
		c := openWebSocket(t, p, prefix+"/")
		say(t, c, "one")
		if n := p.conns(); n != 1 {
			t.Errorf("%d in flight while the WebSocket is open, want 1", n)
		}
		c.Close()
		p.waitConns(0)

		// The client ends its side only: the server's last word still arrives.
		c = openWebSocket(t, p, prefix+"/")
		say(t, c, "two")
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if text, err := message(c.Reader()); text != "bye" || err != nil {
			t.Errorf("after the client's end: %q, %v, want bye", text, err)
		}
		if _, err := c.Reader().Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the server's end: %v, want EOF", err)
		}
		c.Close()
		p.waitConns(0)

		// The server leaves.
		c = openWebSocket(t, p, prefix+"/")
		say(t, c, "three")
		b.CloseConns()
		if _, err := io.ReadAll(c.Reader()); err != nil && !testnet.Broken(err) {
			t.Errorf("after the server left: %v", err)
		}
		c.Close()
		p.waitConns(0)
	})
}

func TestARefusedUpgradeIsAnOrdinaryAnswer(t *testing.T) {
	t.Parallel()
	b := newWebSocket(t)
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	res := p.get("/", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 1")
	if res.Status != 400 {
		t.Errorf("status %d, want 400", res.Status)
	}
	p.waitConns(0)
}

func TestA101ThatNobodyAskedForIs502(t *testing.T) {
	t.Parallel()
	b := testnet.NewBackend(t, testnet.Answer{
		Raw: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", Then: testnet.Close,
	})
	p := serve(t, group("app", b.Addr()), "\tproxy_pass app")
	if res := p.get("/"); res.Status != 502 {
		t.Errorf("status %d, want 502", res.Status)
	}
	p.waitConns(0)
}
