// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxmap

import "strings"

// Template is a text with $1, $name and ${name} in it.
type Template struct {
	text  string
	parts []piece // nil if the text has no variables
}

// piece is a literal text or the name of a variable.
type piece struct {
	text     string
	variable bool
}

// ParseTemplate finds the variables in a text.
func ParseTemplate(s string) *Template {
	t := &Template{text: s}
	for rest := s; rest != ""; {
		i := strings.IndexByte(rest, '$')
		if i < 0 {
			if t.parts != nil {
				t.literal(rest)
			}
			break
		}
		name, length := variableName(rest[i+1:])
		if length == 0 {
			t.literal(rest[:i+1])
		} else {
			t.literal(rest[:i])
			t.parts = append(t.parts, piece{name, true})
		}
		rest = rest[i+1+length:]
	}
	return t
}

func (t *Template) literal(s string) {
	if s != "" {
		t.parts = append(t.parts, piece{text: s})
	}
}

// variableName returns the name after a dollar sign and how many bytes it
// takes; none if there is no name. A digit is a name of its own.
func variableName(s string) (name string, length int) {
	if strings.HasPrefix(s, "{") {
		end := strings.IndexByte(s, '}')
		if end < 2 || nameLength(s[1:end]) != end-1 {
			return "", 0
		}
		return s[1:end], end + 1
	}
	if s != "" && s[0] >= '1' && s[0] <= '9' {
		return s[:1], 1
	}
	n := nameLength(s)
	return s[:n], n
}

func nameLength(s string) int {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return i
		}
	}
	return len(s)
}

// Expand returns the text with each variable replaced.
func (t *Template) Expand(variable func(name string) string) string {
	if t.parts == nil {
		return t.text
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.variable {
			b.WriteString(variable(p.text))
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}
