// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"errors"
	"strings"
)

var errURI = errors.New("invalid request URI")

// originForm is a request target without the scheme and host of the absolute
// form. A target without a path may be left with its arguments alone.
func originForm(target string) string {
	i := strings.Index(target, "://")
	if i <= 0 || target[0] == '/' {
		return target
	}
	rest := target[i+len("://"):]
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		return rest[end:]
	}
	return "/"
}

// validMethod reports whether nginx reads a method.
func validMethod(method string) bool {
	for i := range len(method) {
		if c := method[i]; (c < 'A' || c > 'Z') && c != '_' && c != '-' {
			return false
		}
	}
	return method != ""
}

// normalise turns the path of a request line into nginx's $uri: escapes are
// decoded, dot segments resolved and, if merge, slashes merged. quoted reports
// that there were escapes.
func normalise(path string, merge bool) (uri string, quoted bool, err error) {
	if path == "" || path[0] != '/' {
		return "", false, errURI
	}
	path, _, _ = strings.Cut(path, "#")
	decoded := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			if i+2 >= len(path) {
				return "", false, errURI
			}
			hi, ok1 := unhex(path[i+1])
			lo, ok2 := unhex(path[i+2])
			if !ok1 || !ok2 {
				return "", false, errURI
			}
			c, quoted = hi<<4|lo, true
			i += 2
		}
		if c == 0 {
			return "", false, errURI
		}
		decoded = append(decoded, c)
	}
	uri, ok := resolve(string(decoded), merge)
	if !ok {
		return "", quoted, errURI
	}
	return uri, quoted, nil
}

// resolve takes dot segments out. It reports false if they lead out of the root.
func resolve(path string, merge bool) (string, bool) {
	segments := strings.Split(path[1:], "/")
	var out []string
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == ".":
			if last {
				out = append(out, "")
			}
		case s == "..":
			if len(out) == 0 {
				return "", false
			}
			out = out[:len(out)-1]
			if last {
				out = append(out, "")
			}
		case s == "" && merge && !last:
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/"), true
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

const upperhex = "0123456789ABCDEF"

// escapeURI escapes a path for a request line as nginx does when it passes on
// a path that it has changed.
func escapeURI(s string) string {
	return escape(s, func(c byte) bool {
		return c <= ' ' || c >= 0x7f || strings.IndexByte("#%?\"<>\\^`{|}", c) >= 0
	})
}

// escapeSpaces escapes what would end a target, or the line, before its time.
func escapeSpaces(s string) string {
	return escape(s, func(c byte) bool { return c <= ' ' || c == 0x7f })
}

// escapeArgs escapes a captured text that becomes part of the arguments.
func escapeArgs(s string) string {
	return escape(s, func(c byte) bool {
		return c <= ' ' || c >= 0x7f || strings.IndexByte("#%&+?\"<>\\^`{|}", c) >= 0
	})
}

func escape(s string, bad func(byte) bool) string {
	n := 0
	for i := range len(s) {
		if bad(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; bad(c) {
			b = append(b, '%', upperhex[c>>4], upperhex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// unescape decodes valid escapes and leaves others as they are.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, ok1 := unhex(s[i+1])
			lo, ok2 := unhex(s[i+2])
			if ok1 && ok2 {
				b = append(b, hi<<4|lo)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// unescapeRedirect decodes what need not be escaped in the path of a redirect,
// and a question mark, up to which the path goes then.
func unescapeRedirect(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '?' {
			return string(append(b, s[i:]...))
		}
		if s[i] != '%' || i+2 >= len(s) {
			b = append(b, s[i])
			continue
		}
		hi, ok1 := unhex(s[i+1])
		lo, ok2 := unhex(s[i+2])
		c := hi<<4 | lo
		switch {
		case ok1 && ok2 && c == '?':
			return string(append(append(b, c), s[i+3:]...))
		case ok1 && ok2 && c > '%' && c < 0x7f:
			b = append(b, c)
			i += 2
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}
