// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxmap

import (
	"fmt"
	"regexp"
	"strings"
)

// Entry is one line of a map block.
type Entry struct {
	// Pattern says which keys the line is for (see the package's text).
	Pattern string `json:"pattern"`
	// Value may hold $1, $name and ${name}.
	Value string `json:"value"`
}

type regexRule struct {
	re    *regexp.Regexp
	value *Template
}

// Map is the result of New. It is read-only.
type Map struct {
	hostnames bool
	exact     map[string]*Template
	heads     map[string]*Template // ".example.com"
	tails     map[string]*Template // "www.example."
	maxHead   int                  // the longest of heads
	maxTail   int                  // the longest of tails
	regexes   []regexRule
	fallback  *Template
}

// New builds a map. With hostnames, patterns may be wildcards.
func New(entries []Entry, hostnames bool) (*Map, error) {
	m := &Map{
		hostnames: hostnames,
		exact:     map[string]*Template{},
		heads:     map[string]*Template{},
		tails:     map[string]*Template{},
	}
	for _, e := range entries {
		if err := m.add(e); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Map) add(e Entry) error {
	value := ParseTemplate(e.Value)
	if e.Pattern == "default" {
		if m.fallback != nil {
			return fmt.Errorf("map: a second default, %q", e.Value)
		}
		m.fallback = value
		return nil
	}
	if expr, ok := strings.CutPrefix(e.Pattern, "~"); ok {
		flags := ""
		if e, ok := strings.CutPrefix(expr, "*"); ok {
			expr, flags = e, "(?i)"
		}
		re, err := regexp.Compile(flags + expr)
		if err != nil {
			return fmt.Errorf("map: bad regular expression in %q: %w", e.Pattern, err)
		}
		m.regexes = append(m.regexes, regexRule{re, value})
		return nil
	}
	if text, ok := strings.CutPrefix(e.Pattern, `\`); ok {
		return put(m.exact, lower(text), value, e.Pattern)
	}
	if m.hostnames {
		return m.addHostname(lower(e.Pattern), value)
	}
	return put(m.exact, lower(e.Pattern), value, e.Pattern)
}

func (m *Map) addHostname(p string, value *Template) error {
	bad := fmt.Errorf(`map: bad hostname %q: a wildcard is "*." or "." before a name, or ".*" after one`, p)
	switch {
	case strings.HasPrefix(p, "*.") && len(p) > 2:
		p = p[1:]
		if strings.Contains(p, "*") {
			return bad
		}
		m.maxHead = max(m.maxHead, len(p))
		return put(m.heads, p, value, "*"+p)
	case strings.HasPrefix(p, ".") && len(p) > 1:
		if strings.Contains(p, "*") {
			return bad
		}
		m.maxHead = max(m.maxHead, len(p))
		if err := put(m.exact, p[1:], value, p); err != nil {
			return err
		}
		return put(m.heads, p, value, p)
	case strings.HasSuffix(p, ".*") && len(p) > 2:
		p = p[:len(p)-1]
		if strings.Contains(p, "*") {
			return bad
		}
		m.maxTail = max(m.maxTail, len(p))
		return put(m.tails, p, value, p+"*")
	case strings.Contains(p, "*") || p == ".":
		return bad
	}
	return put(m.exact, p, value, p)
}

func put(to map[string]*Template, key string, value *Template, pattern string) error {
	if _, exists := to[key]; exists {
		return fmt.Errorf("map: conflicting pattern %q: it is there already", pattern)
	}
	to[key] = value
	return nil
}

// Result is what Lookup found.
type Result struct {
	// Matched: a pattern other than default matched.
	Matched bool
	value   *Template
	re      *regexp.Regexp
	key     string
	groups  []int
}

// Lookup finds the value of a key. It allocates nothing unless a regular
// expression matches or a key with capitals is longer than 256 bytes.
func (m *Map) Lookup(key string) Result {
	if m.hostnames {
		key = strings.TrimSuffix(key, ".")
	}
	if v := m.lookupText(key); v != nil {
		return Result{Matched: true, value: v}
	}
	for i := range m.regexes {
		r := &m.regexes[i]
		if r.re.NumSubexp() == 0 {
			if r.re.MatchString(key) {
				return Result{Matched: true, value: r.value}
			}
		} else if g := r.re.FindStringSubmatchIndex(key); g != nil {
			return Result{Matched: true, value: r.value, re: r.re, key: key, groups: g}
		}
	}
	return Result{value: m.fallback}
}

// lookupText tries exact texts and wildcards.
func (m *Map) lookupText(key string) *Template {
	var space [256]byte
	low := appendLower(space[:0], key)
	if v := m.exact[string(low)]; v != nil {
		return v
	}
	if m.maxHead > 0 {
		for i := max(0, len(low)-m.maxHead); i < len(low); i++ {
			if low[i] == '.' {
				if v := m.heads[string(low[i:])]; v != nil {
					return v
				}
			}
		}
	}
	if m.maxTail > 0 {
		for i := min(len(low), m.maxTail) - 1; i > 0; i-- {
			if low[i] == '.' {
				if v := m.tails[string(low[:i+1])]; v != nil {
					return v
				}
			}
		}
	}
	return nil
}

// Text returns the value as it was written.
func (r Result) Text() string {
	if r.value == nil {
		return ""
	}
	return r.value.text
}

// Capture returns a group of the regular expression that matched, by its
// number ("1") or name; an empty text for one that took no part. False: there
// is no such group.
func (r Result) Capture(name string) (string, bool) {
	if r.re == nil {
		return "", false
	}
	group := 0
	if len(name) == 1 && name[0] >= '1' && name[0] <= '9' {
		group = int(name[0] - '0')
	} else {
		group = r.re.SubexpIndex(name)
	}
	if group < 1 || group > r.re.NumSubexp() {
		return "", false
	}
	if r.groups[2*group] < 0 {
		return "", true
	}
	return r.key[r.groups[2*group]:r.groups[2*group+1]], true
}

// Names lists the named groups of the regular expression that matched, which
// become variables in nginx.
func (r Result) Names() []string {
	if r.re == nil {
		return nil
	}
	var names []string
	for _, n := range r.re.SubexpNames() {
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// Expand returns the value with captures and variables put in. variable, which
// may be nil, is asked for the names that are not captures.
func (r Result) Expand(variable func(name string) string) string {
	if r.value == nil {
		return ""
	}
	return r.value.Expand(func(name string) string {
		if s, ok := r.Capture(name); ok || variable == nil {
			return s
		}
		return variable(name)
	})
}

func lower(s string) string { return string(appendLower(nil, s)) }

// appendLower lowers ASCII letters only, as nginx does.
func appendLower(b []byte, s string) []byte {
	b = append(b, s...)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return b
}
