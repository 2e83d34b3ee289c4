// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// reads is how often the kernel's tables are read: they come in pieces, and a
// socket is missing from a reading when others go meanwhile.
const reads = 5

// handedOver reports that no more than one socket listens at each address with
// one of these TCP ports.
func handedOver(ports []int) (bool, error) {
	for range reads {
		if once, err := readOnce(ports); !once || err != nil {
			return false, err
		}
	}
	return true, nil
}

func readOnce(ports []int) (bool, error) {
	ours := map[string]bool{}
	for _, p := range ports {
		ours[fmt.Sprintf("%04X", p)] = true
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if os.IsNotExist(err) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, err
		}
		once, err := listenOnce(bufio.NewScanner(f), ours)
		f.Close()
		if !once || err != nil {
			return false, err
		}
	}
	return true, nil
}

// listenOnce reads lines like "12: 0100007F:1F90 00000000:0000 0A ...": a local
// address, a remote one and the state, of which 0A is LISTEN. Below a headline
// those that listen come first; there may be many others.
func listenOnce(lines *bufio.Scanner, ports map[string]bool) (bool, error) {
	seen := map[string]bool{}
	lines.Scan()
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || f[3] != "0A" {
			break
		}
		local := f[1]
		if _, port, _ := strings.Cut(local, ":"); !ports[port] {
			continue
		}
		if seen[local] {
			return false, nil
		}
		seen[local] = true
	}
	return true, lines.Err()
}
