// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import "strings"

// Classes of bytes, RFC 9110 and 9112.
const (
	tokenByte  uint8 = 1 << iota
	valueByte        // may stand in a header value that we send
	targetByte       // may stand in a request target
	answerByte       // may stand in a header value or reason that a server sends
	digitByte
	upperByte
	lowerByte
)

var class = func() (t [256]uint8) {
	for i := range t {
		b := byte(i)
		switch {
		case '0' <= b && b <= '9':
			t[i] |= tokenByte | digitByte
		case 'a' <= b && b <= 'z':
			t[i] |= tokenByte | lowerByte
		case 'A' <= b && b <= 'Z':
			t[i] |= tokenByte | upperByte
		}
		if b == '\t' || b >= ' ' && b != 0x7f {
			t[i] |= valueByte
		}
		if b > ' ' && b != 0x7f {
			t[i] |= targetByte
		}
		// As nginx: only what would end a line or a string is refused.
		if b != 0 && b != '\r' && b != '\n' {
			t[i] |= answerByte
		}
	}
	for _, b := range "!#$%&'*+-.^_`|~" {
		t[b] |= tokenByte
	}
	return t
}()

func all(s string, want uint8) bool {
	for i := 0; i < len(s); i++ {
		if class[s[i]]&want == 0 {
			return false
		}
	}
	return true
}

func isToken(s string) bool      { return s != "" && all(s, tokenByte) }
func isFieldValue(s string) bool { return all(s, valueByte) }
func isTarget(s string) bool     { return all(s, targetByte) }

// isAnswerText is all(s, answerByte) for a part of a line, which has no '\n'.
func isAnswerText(s string) bool {
	return strings.IndexByte(s, 0) < 0 && strings.IndexByte(s, '\r') < 0
}
