// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The readers of the table: each checks the arguments of a directive and makes
// its value.

func readText(a *adapter, d *dir) (any, error) { return d.args[0], nil }

func readWords(a *adapter, d *dir) (any, error) { return d.args, nil }

// readTemplate is a text with variables.
func readTemplate(a *adapter, d *dir) (any, error) {
	a.uses(d, d.args[0])
	return d.args[0], nil
}

func readPair(a *adapter, d *dir) (any, error) {
	a.uses(d, d.args[1])
	return pair{d.args[0], d.args[1]}, nil
}

type pair struct{ name, value string }

func readFlag(a *adapter, d *dir) (any, error) {
	switch strings.ToLower(d.args[0]) {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return nil, d.errorf("invalid value %q: expected on or off", d.args[0])
}

func readNumber(a *adapter, d *dir) (any, error) {
	n, err := strconv.Atoi(d.args[0])
	if err != nil || n < 0 {
		return nil, d.errorf("invalid number %q", d.args[0])
	}
	return n, nil
}

func readTime(a *adapter, d *dir) (any, error) {
	t, err := parseTime(d.args[0])
	if err != nil {
		return nil, d.errorf("%v", err)
	}
	return t, nil
}

func readSize(a *adapter, d *dir) (any, error) {
	n, err := parseSize(d.args[0])
	if err != nil {
		return nil, d.errorf("%v", err)
	}
	return n, nil
}

// readRate is a size, or a text with variables that has one in the end.
func readRate(a *adapter, d *dir) (any, error) {
	if hasVariables(d.args[0]) {
		return readTemplate(a, d)
	}
	n, err := parseSize(d.args[0])
	if err != nil {
		return nil, d.errorf("%v", err)
	}
	return strconv.FormatInt(n, 10), nil
}

// headerBuffers is large_client_header_buffers: how many, and of what size.
type headerBuffers struct{ number, size int }

// readHeaderBuffers reads the bytes that the header of a request may have.
func readHeaderBuffers(a *adapter, d *dir) (any, error) {
	n, err := strconv.Atoi(d.args[0])
	size, err2 := parseSize(d.args[1])
	if err != nil || err2 != nil || n < 1 || size < 1 || size > 1<<24 || n > 1<<10 {
		return nil, d.errorf("invalid parameters %q: expected a number and a size", strings.Join(d.args, " "))
	}
	return headerBuffers{n, int(size)}, nil
}

// oneOf accepts some words.
func oneOf(words ...string) func(*adapter, *dir) (any, error) {
	return func(a *adapter, d *dir) (any, error) {
		for _, w := range words {
			if d.args[0] == w {
				return w, nil
			}
		}
		return nil, d.errorf("invalid value %q: expected one of %s", d.args[0], strings.Join(words, ", "))
	}
}

var timeUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "": time.Second, "m": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "M": 30 * 24 * time.Hour, "y": 365 * 24 * time.Hour,
}

// parseTime reads nginx's times: 60, 500ms, "1h 30m".
func parseTime(s string) (time.Duration, error) {
	bad := fmt.Errorf("invalid time %q: expected a number with ms, s, m, h, d, w, M or y", s)
	var total time.Duration
	rest := s
	if rest == "" {
		return 0, bad
	}
	for rest != "" {
		i := 0
		for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' {
			i++
		}
		n, err := strconv.ParseInt(rest[:i], 10, 64)
		if err != nil {
			return 0, bad
		}
		rest = rest[i:]
		j := 0
		for j < len(rest) && rest[j] != ' ' && (rest[j] < '0' || rest[j] > '9') {
			j++
		}
		unit, ok := timeUnits[rest[:j]]
		if !ok || n > int64(math.MaxInt64/4/unit) {
			return 0, bad
		}
		if total += time.Duration(n) * unit; total < 0 {
			return 0, bad
		}
		rest = strings.TrimLeft(rest[j:], " ")
	}
	return total, nil
}

// parseSize reads nginx's sizes: 8192, 8k, 1m, 1g.
func parseSize(s string) (int64, error) {
	shift := 0
	num := s
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		}
	}
	if shift > 0 {
		num = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("invalid size %q: expected a number with k, m or g", s)
	}
	return n << shift, nil
}
