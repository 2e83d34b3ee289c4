// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bytes"
	"io"
	"net/http"
)

// Where a chunked body is read.
const (
	atSize = iota
	atData
	atDataEnd
	atTrailer
)

const (
	// chunkLine bounds a chunk's size line, extensions included.
	chunkLine = 1 << 10
	// chunkWaste bounds what extensions may take beyond the data they carry.
	chunkWaste = 16 << 10
)

// readChunked reads as much as there is without waiting twice.
func (x *trip) readChunked(p []byte) (n int, err error) {
	in, c := &x.in, x.c
	for {
		switch in.stage {
		case atSize, atDataEnd:
			line, err := x.line(n > 0)
			if line == nil || err != nil {
				return n, err
			}
			if err := in.chunkLine(line); err != nil {
				return n, err
			}
		case atData:
			if len(p) == n || n > 0 && c.r == c.w {
				return n, nil
			}
			m, err := x.receive(p[n:][:min(int64(len(p)-n), in.left)])
			n += m
			in.left -= int64(m)
			in.waste = max(0, in.waste-m)
			if err != nil {
				return n, whole(err)
			}
			if in.left == 0 {
				in.stage = atDataEnd
			}
		case atTrailer:
			done, err := x.trailer(n > 0)
			if err != nil {
				return n, err
			}
			if !done {
				return n, nil
			}
			return n, io.EOF
		}
	}
}

// line returns the next line without its end. It returns nil instead of waiting
// if now is set.
func (x *trip) line(now bool) ([]byte, error) {
	c := x.c
	for {
		b := c.buf[c.r:c.w]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			c.r += i + 1
			if i > 0 && b[i-1] == '\r' {
				i--
			}
			if i > chunkLine {
				return nil, errChunk
			}
			return b[:i:i], nil
		}
		if len(b) > chunkLine {
			return nil, errChunk
		}
		if now {
			return nil, nil
		}
		if err := x.fill(); err != nil {
			return nil, whole(err)
		}
	}
}

// chunkLine takes the line before or after a chunk's data.
func (in *incoming) chunkLine(line []byte) error {
	if in.stage == atDataEnd {
		if len(line) > 0 {
			return errChunk
		}
		in.stage = atSize
		return nil
	}
	size, extension, err := parseChunkSize(line)
	if err != nil {
		return err
	}
	if in.waste += extension; in.waste > chunkWaste {
		return errChunk
	}
	in.left, in.stage = size, atData
	if size == 0 {
		in.stage = atTrailer
	}
	return nil
}

// parseChunkSize parses a chunk's size line. 15 digits cannot overflow.
func parseChunkSize(line []byte) (size int64, extension int, err error) {
	i := 0
	for ; i < len(line); i++ {
		d := unhex(line[i])
		if d < 0 {
			break
		}
		if i == 15 {
			return 0, 0, errChunk
		}
		size = size<<4 | int64(d)
	}
	if i == 0 {
		return 0, 0, errChunk
	}
	rest := bytes.TrimLeft(line[i:], " \t")
	if len(rest) > 0 && rest[0] != ';' {
		return 0, 0, errChunk
	}
	for _, b := range rest {
		if class[b]&answerByte == 0 {
			return 0, 0, errChunk
		}
	}
	return size, len(line) - i, nil
}

func unhex(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

// trailer reads the end of a chunked body into the response's Trailer. done is
// false if it would have to wait although now is set.
func (x *trip) trailer(now bool) (done bool, err error) {
	in, c := &x.in, x.c
	for {
		with, without, next := headEnd(c.buf[c.r:c.w], in.scan)
		if with > x.t.headerLimit || c.w-c.r > 2*x.t.headerLimit {
			return false, errTrailerSize
		}
		if with > 0 {
			block := string(c.buf[c.r : c.r+without])
			c.r += with
			return true, x.addTrailer(block)
		}
		in.scan = next
		if c.w-c.r > x.t.headerLimit {
			return false, errTrailerSize
		}
		if now {
			return false, nil
		}
		if c.r == 0 && c.w == len(c.buf) && !c.grow(2*x.t.headerLimit) {
			return false, errTrailerSize
		}
		if err := x.fill(); err != nil {
			return false, whole(err)
		}
	}
}

func (x *trip) addTrailer(block string) error {
	for block != "" {
		var line string
		line, block = cutLine(block)
		name, value, err := fieldLine(line)
		if err != nil {
			return err
		}
		if !trailerName(name) {
			continue // it could change what has been passed on already
		}
		if x.resp.Trailer == nil {
			x.resp.Trailer = make(http.Header)
		}
		x.resp.Trailer.Add(name, value)
	}
	return nil
}
