// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
)

// netstatOnce reads what `netstat -an` prints: a line for each socket, with the
// protocol first and the state last, and before the state the local address and
// the remote one. The port of an address stands behind its last dot (BSD) or
// colon (Windows). Each address with one of the ports may listen once.
func netstatOnce(r io.Reader, ports []int) (bool, error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !strings.HasPrefix(strings.ToLower(f[0]), "tcp") || !strings.HasPrefix(f[len(f)-1], "LISTEN") {
			continue
		}
		local := f[len(f)-3]
		port, err := strconv.Atoi(local[strings.LastIndexAny(local, ".:")+1:])
		if err != nil || !slices.Contains(ports, port) {
			continue
		}
		key := f[0] + " " + local // tcp4 and tcp6 may both have "*"
		if seen[key] {
			return false, nil
		}
		seen[key] = true
	}
	return true, lines.Err()
}
