// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bytes"
	"errors"
	"math"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// malformed is an answer that is not HTTP: nginx's invalid_header.
type malformed string

func (m malformed) Error() string { return "malformed response: " + string(m) }

const (
	errStatusLine  = malformed("invalid status line")
	errFieldLine   = malformed("invalid header line")
	errFolded      = malformed("folded header line")
	errTooLarge    = malformed("header larger than response_header_limit")
	errLength      = malformed("invalid Content-Length")
	errLengths     = malformed("conflicting lengths")
	errCoding      = malformed("unknown Transfer-Encoding")
	errInterim     = malformed("too many interim responses")
	errSwitch      = malformed("unexpected switch of protocols")
	errChunk       = malformed("invalid chunk")
	errTrailerSize = malformed("trailer too large")
)

// errEarlyEOF is a server that closed before the header was complete.
var errEarlyEOF = errors.New("server closed the connection before the response header was complete")

// head is a parsed response header block.
type head struct {
	code    int
	status  string // "200 OK"
	minor   int    // of HTTP/1.x
	header  http.Header
	trailer http.Header // announced names
	length  int64       // Content-Length, -1 without
	chunked bool
	close   bool // the server says that it closes
	// lengths has the bit of each length, modulo 64, that a name so far has.
	lengths uint64
}

// headEnd finds the empty line that ends a header block, from scan on, which is
// the start of a line. It returns the length of the block with and without it;
// with is 0 if the block is not complete, and scan then is where to go on.
func headEnd(b []byte, scan int) (with, without, next int) {
	for {
		i := bytes.IndexByte(b[scan:], '\n')
		if i < 0 {
			return 0, 0, scan
		}
		if i == 0 || i == 1 && b[scan] == '\r' {
			return scan + i + 1, scan, scan
		}
		scan += i + 1
	}
}

// parseHead parses a header block without its final empty line. All strings of
// the result are parts of block or constants. The values stand in room, if there
// is enough.
func parseHead(block string, room []string) (h head, err error) {
	h.length = -1
	line, rest := cutLine(block)
	if err = h.statusLine(line); err != nil {
		return h, err
	}
	n := strings.Count(rest, "\n")
	h.header = make(http.Header, n)
	values := room
	if n > len(room) {
		values = make([]string, n)
	}
	for i := 0; rest != ""; i++ {
		line, rest = cutLine(rest)
		name, value, err := fieldLine(line)
		if err != nil {
			return h, err
		}
		values[i] = value
		if err := h.field(name, values[i:i+1:i+1]); err != nil {
			return h, err
		}
	}
	if h.chunked {
		if h.length >= 0 {
			return h, errLengths
		}
		delete(h.header, "Transfer-Encoding")
	}
	if t := h.header["Trailer"]; t != nil {
		h.announce(t)
	}
	return h, nil
}

// cutLine returns the first line without its end. block ends with a line end.
func cutLine(block string) (line, rest string) {
	i := strings.IndexByte(block, '\n')
	if i < 0 {
		return block, ""
	}
	line, rest = block[:i], block[i+1:]
	if i > 0 && line[i-1] == '\r' {
		line = line[:i-1]
	}
	return line, rest
}

func (h *head) statusLine(s string) error {
	const prefix = "HTTP/1."
	if len(s) < len("HTTP/1.1 200") || s[:len(prefix)] != prefix {
		return errStatusLine
	}
	m, code := s[len(prefix)], s[len("HTTP/1.1 "):]
	if class[m]&digitByte == 0 || s[len("HTTP/1.1")] != ' ' || !all(code[:3], digitByte) {
		return errStatusLine
	}
	if len(code) > 3 && code[3] != ' ' || !isAnswerText(code) {
		return errStatusLine
	}
	h.minor = int(m - '0')
	h.code = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	h.status = code
	if h.code < 100 {
		return errStatusLine
	}
	return nil
}

// fieldLine splits a header line. There is no white space before the colon and
// no folding: both are how two readers see two different messages.
func fieldLine(s string) (name, value string, err error) {
	i, wrong, other := 0, uint8(0), lowerByte
	for i < len(s) {
		c := class[s[i]]
		if c&tokenByte == 0 {
			break
		}
		wrong |= c & other
		if other = upperByte; s[i] == '-' {
			other = lowerByte
		}
		i++
	}
	if i == 0 || i == len(s) || s[i] != ':' {
		if i == 0 && s != "" && (s[0] == ' ' || s[0] == '\t') {
			return "", "", errFolded
		}
		return "", "", errFieldLine
	}
	value = trim(s[i+1:])
	if !isAnswerText(value) {
		return "", "", errFieldLine
	}
	if name = s[:i]; wrong != 0 {
		name = canonical(name)
	}
	return name, value, nil
}

func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// field enters one header field; v holds its value.
func (h *head) field(name string, v []string) error {
	switch name {
	case "Content-Length":
		n, ok := parseLength(v[0])
		if !ok {
			return errLength
		}
		if h.length >= 0 {
			if n != h.length {
				return errLengths
			}
			return nil
		}
		h.length = n
	case "Transfer-Encoding":
		if h.chunked || !strings.EqualFold(v[0], "chunked") {
			return errCoding
		}
		h.chunked = true
	case "Connection":
		h.close = h.close || httpguts.HeaderValuesContainsToken(v, "close")
	}
	bit := uint64(1) << (len(name) & 63)
	if h.lengths&bit != 0 { // there may have been one of this name
		if old := h.header[name]; old != nil {
			v = append(old, v[0])
		}
	}
	h.lengths |= bit
	h.header[name] = v
	return nil
}

// announce moves the names in Trailer out of the header, as net/http does.
func (h *head) announce(values []string) {
	delete(h.header, "Trailer")
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(trim(name))
			if !trailerName(name) {
				continue
			}
			if h.trailer == nil {
				h.trailer = make(http.Header)
			}
			h.trailer[name] = nil
		}
	}
}

// trailerName reports whether a field may stand in a trailer.
func trailerName(name string) bool {
	return isToken(name) && httpguts.ValidTrailerHeader(name)
}

// parseLength accepts digits only: no sign, no list, no overflow.
func parseLength(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if class[s[i]]&digitByte == 0 {
			return 0, false
		}
		d := int64(s[i] - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// bodiless reports whether a response has no body whatever its header says.
func bodiless(method string, code int) bool {
	return method == http.MethodHead || code < 200 || code == http.StatusNoContent || code == http.StatusNotModified
}
