// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func dial(t *testing.T, addr string) *Client {
	t.Helper()
	c, err := Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestBackendRecordsRequestsToTheByte(t *testing.T) {
	b := NewBackend(t, Answer{})
	c := dial(t, b.Addr())
	content := []byte("some content")
	if _, err := c.Do("POST", "/x?y", []string{"host: h", "X-B: 2", "x-a: 1", "X-B: 3"}, content); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do("PUT", "/chunked", []string{"Transfer-Encoding: chunked"},
		[]byte("5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nX-End: yes\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	got := b.WaitRequests(2)
	want := []Header{{"host", "h"}, {"X-B", "2"}, {"x-a", "1"}, {"X-B", "3"}, {"Content-Length", "12"}}
	if d := cmp.Diff(want, got[0].Header); d != "" {
		t.Errorf("header, -want +got:\n%s", d)
	}
	if got[0].Line != "POST /x?y HTTP/1.1" || got[0].Target() != "/x?y" || got[0].BodySHA256 != SHA256(content) {
		t.Errorf("first request = %+v", got[0])
	}
	if d := cmp.Diff([]string{"2", "3"}, got[0].Values("x-b")); d != "" {
		t.Errorf("Values, -want +got:\n%s", d)
	}
	if string(got[1].Body) != "hello!" || len(got[1].Trailer) != 1 || got[1].Trailer[0] != (Header{"X-End", "yes"}) {
		t.Errorf("chunked request = %+v, want hello! and a trailer", got[1])
	}
	port := c.Conn.LocalAddr().(*net.TCPAddr).Port
	if got[0].ClientPort != port || got[1].ClientPort != port || got[1].Conn != 1 {
		t.Errorf("ports %d and %d, connection %d, want %d twice and 1", got[0].ClientPort, got[1].ClientPort, got[1].Conn, port)
	}
}

func TestBackendAnswersByScript(t *testing.T) {
	for name, tt := range map[string]struct {
		answer Answer
		check  func(Response, error) bool
	}{
		"status":        {StatusAnswer(503), func(r Response, err error) bool { return err == nil && r.Status == 503 }},
		"no body":       {Answer{Status: 204}, func(r Response, err error) bool { return err == nil && r.Line == "HTTP/1.1 204 Scripted" }},
		"close":         {CloseUnanswered, func(_ Response, err error) bool { return errors.Is(err, io.EOF) }},
		"reset":         {ResetUnanswered, func(_ Response, err error) bool { return isReset(err) }},
		"part":          {PartialHeader, func(_ Response, err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"raw":           {Answer{Raw: "NONSENSE\r\n\r\n", Then: Close}, func(_ Response, err error) bool { return err != nil && strings.Contains(err.Error(), "NONSENSE") }},
		"silent":        {Silent, func(_ Response, err error) bool { return isTimeoutErr(err) }},
		"chunked":       {Answer{Header: []string{"Transfer-Encoding: chunked"}, Body: "2\r\nab\r\n0\r\nT: v\r\n\r\n"}, func(r Response, err error) bool { return string(r.Body) == "ab" && len(r.Trailer) == 1 }},
		"short body":    {Answer{Header: []string{"Content-Length: 5"}, Body: "ab", Then: Close}, func(r Response, err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) && r.Text() == "ab" }},
		"until close":   {Answer{Raw: "HTTP/1.0 200 OK\r\n\r\nall of it", Then: Close}, func(r Response, err error) bool { return err == nil && r.Text() == "all of it" }},
		"interim":       {Answer{Raw: "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}, func(r Response, err error) bool { return err == nil && r.Status == 200 && len(r.Interim) == 1 }},
		"echo":          {Answer{Echo: true}, func(r Response, err error) bool { return r.Text() == "content" }},
		"early":         {Answer{Early: true, Status: 413, Then: Close}, func(r Response, err error) bool { return r.Status == 413 }},
		"100 continue":  {Answer{Continue: true}, func(r Response, err error) bool { return r.Status == 200 && r.Interim[0] == 100 }},
		"delay":         {Answer{Delay: 20 * time.Millisecond, Body: "x"}, func(r Response, err error) bool { return err == nil && r.Text() == "x" }},
		"two in a row":  {Answer{Body: "x"}, func(r Response, err error) bool { return err == nil && r.Text() == "x" }},
		"chosen status": {Answer{Raw: "HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n"}, func(r Response, err error) bool { return err == nil && r.Status == 999 }},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBackend(t, tt.answer)
			c := dial(t, b.Addr())
			c.Timeout = 300 * time.Millisecond
			if res, err := c.Do("POST", "/", nil, []byte("content")); !tt.check(res, err) {
				t.Errorf("response = %+v, %v", res, err)
			}
			if name == "two in a row" {
				if res, err := c.Do("GET", "/", nil, nil); !tt.check(res, err) {
					t.Errorf("second response = %+v, %v", res, err)
				}
			}
		})
	}
}

func isTimeoutErr(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestBackendCountsWhatIsInFlight(t *testing.T) {
	release := make(chan struct{})
	b := NewBackend(t, Answer{Hold: release, Body: "done"})
	var clients []*Client
	for range 3 {
		c := dial(t, b.Addr())
		if err := c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	b.WaitRequests(3)
	clients[2].Close() // a client that leaves is no longer in flight
	Eventually(t, 5*time.Second, "two in flight", func() bool { now, most := b.InFlight(); return now == 2 && most == 3 })
	close(release)
	for _, c := range clients[:2] {
		if res, err := c.Receive("GET"); err != nil || res.Text() != "done" {
			t.Errorf("response = %+v, %v, want done", res, err)
		}
		if res, err := c.Do("GET", "/again", nil, nil); err != nil || res.Text() != "done" {
			t.Errorf("next response = %+v, %v, want done", res, err)
		}
	}
	if now, _ := b.InFlight(); now != 0 {
		t.Errorf("%d in flight after all responses, want 0", now)
	}
}

func TestAStoppedBackendRefusesAndComesBackOnItsPort(t *testing.T) {
	b := NewBackend(t, Answer{})
	c := dial(t, b.Addr())
	if _, err := c.Do("GET", "/", nil, nil); err != nil {
		t.Fatal(err)
	}
	addr := b.Addr()
	b.Stop()
	if _, err := c.Do("GET", "/", nil, nil); !Broken(err) {
		t.Errorf("on an open connection %v, want it broken", err)
	}
	if _, err := Dial(addr); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Dial = %v, want refused", err)
	}
	b.Restart()
	if b.Addr() != addr {
		t.Errorf("address %s after Restart, want %s", b.Addr(), addr)
	}
	if _, err := dial(t, addr).Do("GET", "/", nil, nil); err != nil {
		t.Error(err)
	}
	if open, accepted := b.Conns(); open != 1 || accepted != 2 {
		t.Errorf("Conns() = %d, %d, want 1, 2", open, accepted)
	}
}

func TestBackendListensWhereItIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	b := NewBackendOn(t, func() (net.Listener, error) { return net.Listen("unix", path) },
		func(Request) Answer { return Answer{Body: "unix"} })
	if res, err := dial(t, "unix/"+path).Do("GET", "/", nil, nil); err != nil || res.Text() != "unix" {
		t.Errorf("response = %+v, %v, want unix", res, err)
	}
	if len(b.Requests()) != 1 {
		t.Errorf("%d requests, want 1", len(b.Requests()))
	}
}

func TestARefusedPortStaysRefused(t *testing.T) {
	addr := RefusedAddr(t)
	for range 3 {
		if _, err := Dial(addr); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Fatalf("Dial = %v, want refused", err)
		}
	}
}

func TestLinesAnswerInUpperCaseWithTheirPort(t *testing.T) {
	l := NewLines(t, "welcome\n")
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello\nhalf"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	port := l.Addr()[strings.LastIndex(l.Addr(), ":")+1:]
	if want := "welcome\n" + port + " HELLO\n" + port + " HALF"; err != nil || string(got) != want {
		t.Errorf("answers = %q, %v, want %q", got, err, want)
	}
	if d := cmp.Diff([]string{"hello\n", "half"}, l.Received()); d != "" {
		t.Errorf("received, -want +got:\n%s", d)
	}
}

func TestUDPPortsAreGivenOnceAndNotByTheSystem(t *testing.T) {
	given := map[int]bool{}
	t.Run("given", func(t *testing.T) {
		for range 500 {
			port := FreeUDPPort(t)
			if given[port] {
				t.Fatalf("port %d was given twice", port)
			}
			given[port] = true
			if keepUDPPort(t, port) {
				t.Fatalf("port %d could be chosen once more", port)
			}
		}
	})
	for port := range given {
		if _, kept := keptUDPPorts.Load(port); kept {
			t.Fatalf("port %d is kept after the end of the test", port)
		}
	}
	for range 500 {
		c, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if port := c.LocalAddr().(*net.UDPAddr).Port; port >= firstOwnPort && port < firstOwnPort+ownPorts {
			t.Fatalf("the system chose port %d, which FreeUDPPort may give", port)
		}
	}
}

func TestUDPAnswersAndComesBackOnItsPort(t *testing.T) {
	u := NewUDP(t, nil)
	c, err := net.Dial("udp", u.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(want []byte) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		if err != nil || !bytes.HasSuffix(buf[:n], want) {
			t.Errorf("answer = %q, %v, want %q", buf[:n], err, want)
		}
	}
	ask([]byte(" PING"))
	addr := u.Addr()
	u.Stop()
	u.Restart()
	if u.Addr() != addr {
		t.Errorf("address %s after Restart, want %s", u.Addr(), addr)
	}
	ask([]byte(" PING"))
	if got := len(u.Received()); got != 2 {
		t.Errorf("%d datagrams, want 2", got)
	}
}

// The rule for clients over reloads: once more, and only before the first byte.
func TestBrowserRepeatsAGetOnceBeforeTheFirstByte(t *testing.T) {
	var script []Answer
	b := NewBackendFunc(t, func(Request) Answer {
		a := script[0]
		script = script[1:]
		return a
	})
	br := &Browser{Addr: b.Addr()}
	defer br.Close()

	script = []Answer{{Body: "a"}, {Body: "b"}}
	for _, want := range []string{"a", "b"} {
		if res, err := br.Get("/"); err != nil || res.Text() != want {
			t.Errorf("Get = %+v, %v, want %s", res, err, want)
		}
	}
	if _, accepted := b.Conns(); accepted != 1 {
		t.Errorf("%d connections, want 1", accepted)
	}
	for _, broken := range []Answer{CloseUnanswered, ResetUnanswered} {
		script = []Answer{broken, {Body: "again"}}
		if res, err := br.Get("/"); err != nil || res.Text() != "again" {
			t.Errorf("Get = %+v, %v, want again", res, err)
		}
	}
	if br.Repeats != 2 {
		t.Errorf("%d repeats, want 2", br.Repeats)
	}
	script = []Answer{CloseUnanswered, CloseUnanswered}
	if _, err := br.Get("/"); err == nil {
		t.Error("a request that broke twice was repeated again")
	}
	script = []Answer{PartialHeader, {Body: "never"}}
	if _, err := br.Get("/"); err == nil {
		t.Error("a request was repeated after the first byte of a response")
	}
}
