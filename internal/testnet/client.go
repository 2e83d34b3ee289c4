// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Response is one response as the client has seen it.
type Response struct {
	Line       string // the status line, without its end
	Status     int
	Header     []Header // in wire order, names as sent
	Trailer    []Header
	Interim    []int // statuses of the 1xx responses before it
	Body       []byte
	BodySHA256 string
}

// Get is the value of the first header of that name, whatever its case.
func (r Response) Get(name string) string { v, _ := find(r.Header, name); return v }

// Text is the body without surrounding space.
func (r Response) Text() string { return strings.TrimSpace(string(r.Body)) }

// Client is one connection to an HTTP server. Nothing is reused, repeated or
// added that the test does not ask for.
type Client struct {
	Conn    net.Conn
	Timeout time.Duration // of one response, 30 s at first
	r       *bufio.Reader
}

// Dial connects to addr (host:port, or unix/PATH).
func Dial(addr string) (*Client, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix/"); ok {
		network, addr = "unix", path
	}
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return NewClient(c), nil
}

// DialTLS connects to addr with TLS.
func DialTLS(addr string, config *tls.Config) (*Client, error) {
	d := &net.Dialer{Timeout: 10 * time.Second}
	c, err := tls.DialWithDialer(d, "tcp", addr, config)
	if err != nil {
		return nil, err
	}
	return NewClient(c), nil
}

// NewClient is a client over a connection that is there already.
func NewClient(c net.Conn) *Client {
	return &Client{Conn: c, Timeout: 30 * time.Second, r: bufio.NewReader(c)}
}

// Close closes the connection.
func (c *Client) Close() { c.Conn.Close() }

// Send writes raw bytes.
func (c *Client) Send(raw string) error {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.Timeout))
	_, err := io.WriteString(c.Conn, raw)
	return err
}

// errNoAnswer marks an error before the first byte of a response.
var errNoAnswer = errors.New("no response byte")

// Receive reads a response to a request with that method.
func (c *Client) Receive(method string) (Response, error) {
	_ = c.Conn.SetReadDeadline(time.Now().Add(c.Timeout))
	var res Response
	if _, err := c.r.Peek(1); err != nil {
		return res, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	for {
		var err error
		if res.Line, res.Header, err = readHead(c.r); err != nil {
			return res, err
		}
		parts := strings.SplitN(res.Line, " ", 3)
		if len(parts) < 2 || !strings.HasPrefix(parts[0], "HTTP/1.") {
			return res, fmt.Errorf("status line %q", res.Line)
		}
		if res.Status, err = strconv.Atoi(parts[1]); err != nil {
			return res, fmt.Errorf("status line %q", res.Line)
		}
		if res.Status < 100 || res.Status > 199 || res.Status == 101 {
			break
		}
		res.Interim = append(res.Interim, res.Status)
	}
	if method == "HEAD" || res.Status == 101 || res.Status == 204 || res.Status == 304 {
		return res, nil
	}
	sink := newBodySink()
	from, chunked, err := body(c.r, res.Header, true)
	if err == nil {
		_, err = io.Copy(sink, from)
	}
	if err == nil && chunked {
		res.Trailer, err = readHeader(c.r)
	}
	res.Body, res.BodySHA256 = sink.kept, sink.sum()
	return res, err
}

// Reader is what follows the last response, for example after a 101.
func (c *Client) Reader() io.Reader { return c.r }

// Do sends a request with a body and reads the response. header is lines
// ("Name: value"); Host is added if it is missing, and Content-Length where
// there is a body and no framing.
func (c *Client) Do(method, target string, header []string, content []byte) (Response, error) {
	if err := c.Send(head(method, target, c.host(), header, content) + string(content)); err != nil {
		// The response may be there all the same: an early one.
		res, rerr := c.Receive(method)
		if rerr != nil {
			return res, fmt.Errorf("%w: %w", rerr, err)
		}
		return res, nil
	}
	return c.Receive(method)
}

func (c *Client) host() string {
	if a := c.Conn.RemoteAddr(); a.Network() == "tcp" {
		return a.String()
	}
	return "localhost"
}

func head(method, target, host string, header []string, content []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, target)
	has := func(name string) bool {
		for _, h := range header {
			if n, _, _ := strings.Cut(h, ":"); strings.EqualFold(n, name) {
				return true
			}
		}
		return false
	}
	if !has("Host") {
		fmt.Fprintf(&b, "Host: %s\r\n", host)
	}
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	if len(content) > 0 && !has("Content-Length") && !has("Transfer-Encoding") {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(content))
	}
	b.WriteString("\r\n")
	return b.String()
}

// Do sends one request on a connection of its own and fails the test if there
// is no whole response. rawURL is http://host:port/target.
func Do(t testing.TB, method, rawURL string, header []string, content []byte) Response {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	target := u.RequestURI()
	res, err := c.Do(method, target, header, content)
	if err != nil {
		t.Fatalf("%s %s: %v", method, rawURL, err)
	}
	return res
}

// Get is Do for a GET; header is lines.
func Get(t testing.TB, rawURL string, header ...string) Response {
	t.Helper()
	return Do(t, "GET", rawURL, header, nil)
}

// Browser keeps one connection to a server alive as a browser does: a GET is
// sent once more, on a new connection, when its connection is closed or reset
// before the first byte of the response. (On a reload Caddy closes connections
// that are idle, and those that it has not accepted yet.) It belongs to one
// goroutine.
type Browser struct {
	Addr    string
	Repeats int // how often that happened

	// Repeat, if it is set, is called instead of sending a GET once more, and
	// calls again, which does. The connection that broke was asked for at dialled.
	Repeat func(dialled time.Time, again func())

	c       *Client
	dialled time.Time
}

// Get sends a GET.
func (b *Browser) Get(target string, header ...string) (Response, error) {
	res, err := b.once(target, header)
	if !errors.Is(err, errNoAnswer) || !Broken(err) {
		return res, err
	}
	b.Repeats++
	again := func() { res, err = b.once(target, header) }
	if b.Repeat != nil {
		b.Repeat(b.dialled, again)
	} else {
		again()
	}
	return res, err
}

func (b *Browser) once(target string, header []string) (res Response, err error) {
	if b.c == nil {
		b.dialled = time.Now()
		if b.c, err = Dial(b.Addr); err != nil {
			return res, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
	res, err = b.c.Do("GET", target, header, nil)
	if err != nil || strings.EqualFold(res.Get("Connection"), "close") {
		b.Close()
	}
	return res, err
}

// Close closes the connection, if there is one.
func (b *Browser) Close() {
	if b.c != nil {
		b.c.Close()
		b.c = nil
	}
}

// isReset reports that the other side reset or closed the connection.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
