// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// Header is one header line as it was on the wire.
type Header struct{ Name, Value string }

// Request is one request as a Backend has seen it.
type Request struct {
	Line       string   // the request line, without its end
	Header     []Header // in wire order, names as sent
	Trailer    []Header
	ClientPort int // of the connection that it came over
	Conn       int // number of that connection, from 1
	Body       []byte
	BodySHA256 string // hexadecimal
	BodyError  error  // if the body broke off
	At         time.Time
}

// Method is the first word of the request line.
func (r Request) Method() string { m, _, _ := strings.Cut(r.Line, " "); return m }

// Target is the second word of the request line.
func (r Request) Target() string {
	_, rest, _ := strings.Cut(r.Line, " ")
	target, _, _ := strings.Cut(rest, " ")
	return target
}

// Get is the value of the first header of that name, whatever its case.
func (r Request) Get(name string) string { v, _ := find(r.Header, name); return v }

// Values are all values of a header, in order.
func (r Request) Values(name string) []string {
	var out []string
	for _, h := range r.Header {
		if strings.EqualFold(h.Name, name) {
			out = append(out, h.Value)
		}
	}
	return out
}

func find(header []Header, name string) (string, bool) {
	for _, h := range header {
		if strings.EqualFold(h.Name, name) {
			return h.Value, true
		}
	}
	return "", false
}

// readHead reads a first line and a header block. It is strict where a test
// wants to notice: every line ends in CR LF and every header has a colon.
func readHead(r *bufio.Reader) (line string, header []Header, err error) {
	if line, err = readLine(r); err != nil {
		return "", nil, err
	}
	header, err = readHeader(r)
	return line, header, err
}

func readHeader(r *bufio.Reader) ([]Header, error) {
	var header []Header
	for {
		l, err := readLine(r)
		if err != nil {
			return header, noEOF(err)
		}
		if l == "" {
			return header, nil
		}
		name, value, ok := strings.Cut(l, ":")
		if !ok {
			return header, fmt.Errorf("header line without a colon: %q", l)
		}
		header = append(header, Header{name, strings.TrimSpace(value)})
	}
}

func readLine(r *bufio.Reader) (string, error) {
	l, err := r.ReadString('\n')
	if err != nil {
		if l != "" {
			err = noEOF(err)
		}
		return "", err
	}
	if !strings.HasSuffix(l, "\r\n") {
		return "", fmt.Errorf("line without CR LF: %q", l)
	}
	return strings.TrimSuffix(l, "\r\n"), nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// body is the framing of a message's body. toEnd says what holds without a
// Content-Length: the end of the connection (a response) or nothing (a request).
func body(r *bufio.Reader, header []Header, toEnd bool) (b io.Reader, chunked bool, err error) {
	if te, ok := find(header, "Transfer-Encoding"); ok {
		if !strings.EqualFold(te, "chunked") {
			return nil, false, fmt.Errorf("Transfer-Encoding %q", te)
		}
		return httputil.NewChunkedReader(r), true, nil
	}
	if cl, ok := find(header, "Content-Length"); ok {
		n, err := strconv.ParseInt(cl, 10, 64)
		if err != nil || n < 0 {
			return nil, false, fmt.Errorf("Content-Length %q", cl)
		}
		return &exactly{r: r, left: n}, false, nil
	}
	if toEnd {
		return r, false, nil
	}
	return strings.NewReader(""), false, nil
}

// exactly reads n bytes and takes an earlier end for an error.
type exactly struct {
	r    io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if e.left > 0 {
		err = noEOF(err)
	}
	return n, err
}

// keepBody is how much of a body is kept beside its hash.
const keepBody = 1 << 20

// bodySink hashes a body and keeps its beginning.
type bodySink struct {
	hash hash.Hash
	kept []byte
}

func newBodySink() *bodySink { return &bodySink{hash: sha256.New()} }

func (s *bodySink) Write(p []byte) (int, error) {
	s.hash.Write(p)
	s.kept = append(s.kept, p[:min(len(p), keepBody-len(s.kept))]...)
	return len(p), nil
}

func (s *bodySink) sum() string { return hex.EncodeToString(s.hash.Sum(nil)) }

// SHA256 is the hash of b as Request.BodySHA256 and Response.BodySHA256 write it.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
