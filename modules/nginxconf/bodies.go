// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"strconv"

	"github.com/caddy-upstream/caddy-upstream/modules/nextupstream"
)

// defaultBodyBuffer is client_body_buffer_size where it is not given.
const defaultBodyBuffer = 16 << 10

// keptBody is the longest body that $request_body has in s; 0 is that of the
// block around it.
func keptBody(s *scope) int64 {
	_, said := own[string](s, "client_body_in_file_only")
	switch {
	case value(s, "client_body_in_file_only", "off") != "off":
		return -1 // a body in a file is not in the variable
	case said, s.kind == inServer:
		if n := value(s, "client_body_buffer_size", int64(0)); n > 0 {
			return n
		}
		return defaultBodyBuffer
	}
	return value(onlyOwn(s), "client_body_buffer_size", int64(0))
}

// bodyFiles says which files with bodies have a name, nil: none.
func (a *adapter) bodyFiles(s *scope) *nextupstream.BodyFiles {
	mode := value(s, "client_body_in_file_only", "off")
	if mode != "on" && !a.usesAny([]string{"request_body_file"}) {
		return nil
	}
	b := value(s, "client_body_temp_path", nextupstream.BodyFiles{Dir: a.path("client_body_temp")})
	b.Always, b.Keep = mode != "off", mode == "on"
	return &b
}

func readBodyInFile(a *adapter, d *dir) (any, error) {
	switch d.args[0] {
	case "on", "off":
	case "clean":
		a.warn(d, "bodies are put into files only if $request_body_file is used; $request_body is empty anyway")
	default:
		return nil, d.errorf("invalid value %q", d.args[0])
	}
	return d.args[0], nil
}

// readTempPath reads client_body_temp_path.
func readTempPath(a *adapter, d *dir) (any, error) {
	b := nextupstream.BodyFiles{Dir: a.path(d.args[0])}
	for _, w := range d.args[1:] {
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 || n > 3 {
			return nil, d.errorf("invalid value %q: expected a number of digits, 1 to 3", w)
		}
		b.Levels = append(b.Levels, n)
	}
	a.warn(d, "it is for client_body_in_file_only and $request_body_file: other temporary files have no name")
	return b, nil
}
