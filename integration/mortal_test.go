// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// mortal is a backend that can be killed at any moment. Its small answers leave
// in one write, so that a client gets all of one or nothing: what breaks off in
// the middle of an answer nobody can repair.
type mortal struct {
	t    *testing.T
	addr string

	mu     sync.Mutex // guards what follows
	server *http.Server
	conns  map[net.Conn]bool
}

func newMortal(t *testing.T) *mortal {
	t.Helper()
	m := &mortal{t: t, addr: testnet.Reserve(t).Addr(), conns: map[net.Conn]bool{}}
	m.start()
	t.Cleanup(m.kill)
	return m
}

// start listens, if it does not already.
func (m *mortal) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server != nil {
		return
	}
	var ln net.Listener
	var err error
	testnet.Poll(10*time.Second, func() bool { // a client's connection may have got the port for a moment
		ln, err = net.Listen("tcp", m.addr)
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	if err != nil {
		m.t.Errorf("backend: %v", err)
		return
	}
	m.server = &http.Server{Handler: http.HandlerFunc(m.serve), ConnState: m.state}
	go func(s *http.Server) { _ = s.Serve(ln) }(m.server)
}

// kill closes everything at once.
func (m *mortal) kill() {
	m.mu.Lock()
	server := m.server
	m.server = nil
	m.mu.Unlock()
	if server == nil {
		return
	}
	server.Close() // waits for calls of state
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		c.Close() // those that were hijacked
		delete(m.conns, c)
	}
}

func (m *mortal) state(c net.Conn, s http.ConnState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s {
	case http.StateNew:
		m.conns[c] = true
	case http.StateClosed:
		delete(m.conns, c)
	}
}

// open is the number of connections.
func (m *mortal) open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.conns)
}

func (m *mortal) serve(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/socket/") {
		m.socket(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path != "/warm-up" {
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // work
	}
	switch answer := r.URL.RequestURI(); {
	case r.URL.Path == "/silent":
		<-r.Context().Done() // until Caddy gives up
	case r.URL.Path == "/large":
		_, _ = w.Write(make([]byte, 1<<20))
	case r.Method == http.MethodPost:
		_, _ = fmt.Fprintf(w, "%x", sha256.Sum256(body))
	default:
		_, _ = io.WriteString(w, answer)
	}
}

// socket switches protocols and echoes.
func (m *mortal) socket(w http.ResponseWriter) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() {
		c.Close()
		m.state(c, http.StateClosed)
	}()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(c, rw)
}

// upload sends a POST and compares what arrived. It is sent once more, as a
// browser may, if the connection breaks before the answer: on a reload Caddy
// resets connections that it has not accepted yet.
func (c *chaos) upload(body []byte, chunked bool) error {
	dialled := time.Now()
	res, err := c.uploadOnce(body, chunked)
	if err != nil && res.Line == "" && testnet.Broken(err) {
		c.repeat(dialled, func() { res, err = c.uploadOnce(body, chunked) })
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(body)); err != nil || res.Status != 200 || res.Text() != want {
		return fmt.Errorf("%q %q, error %w; want 200 and %s", res.Line, res.Text(), errOr(err), want)
	}
	return nil
}

var errNone = errors.New("none")

func errOr(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func (c *chaos) uploadOnce(body []byte, chunked bool) (testnet.Response, error) {
	client, err := testnet.Dial(c.front)
	if err != nil {
		return testnet.Response{}, err
	}
	defer client.Close()
	if !chunked {
		return client.Do("POST", "/upload", nil, body)
	}
	var wire bytes.Buffer
	for rest := body; len(rest) > 0; {
		n := min(len(rest), 10_000)
		fmt.Fprintf(&wire, "%x\r\n%s\r\n", n, rest[:n])
		rest = rest[n:]
	}
	wire.WriteString("0\r\n\r\n")
	return client.Do("POST", "/upload", []string{"Transfer-Encoding: chunked"}, wire.Bytes())
}

// webSocket opens one to the backend that is never killed. A reload that ends at
// this moment may close it first.
func (c *chaos) webSocket() *testnet.Client {
	c.t.Helper()
	var client *testnet.Client
	testnet.Eventually(c.t, 10*time.Second, "a WebSocket", func() bool {
		var err error
		if client, err = testnet.Dial(c.front); err != nil {
			return false
		}
		res, err := client.Do("GET", "/socket/alive", []string{"Connection: Upgrade", "Upgrade: websocket"}, nil)
		if err == nil && res.Status == 101 {
			return true
		}
		client.Close()
		return false
	})
	return client
}

// leave sends a part of a request, or reads a part of its answer, and leaves,
// politely or not.
func (c *chaos) leave(random *rand.Rand) {
	client, err := testnet.Dial(c.front)
	if err != nil {
		if !testnet.Broken(err) {
			c.t.Errorf("dialling the front: %v", err)
		}
		return
	}
	defer client.Close()
	requests := []string{
		"GET /echo/left HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /silent HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n" + strings.Repeat("x", 50_000),
		"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat("y", 4096)+"\r\n", 20) + "0\r\n\r\n",
		"POST /upload HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
		"GET /socket/left HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	}
	wire := requests[random.IntN(len(requests))]
	if random.IntN(2) == 0 {
		wire = wire[:random.IntN(len(wire))]
	}
	if client.Send(wire) != nil {
		return
	}
	_ = client.Conn.SetReadDeadline(time.Now().Add(time.Duration(random.IntN(10)) * time.Millisecond))
	_, _ = io.CopyN(io.Discard, client.Reader(), int64(random.IntN(100_000)))
	if tcp, ok := client.Conn.(*net.TCPConn); ok && random.IntN(2) == 0 {
		_ = tcp.SetLinger(0)
	}
}
