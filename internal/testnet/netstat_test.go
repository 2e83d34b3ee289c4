// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"strings"
	"testing"
)

func TestListenersAreCountedInWhatNetstatPrints(t *testing.T) {
	const (
		bsd = `Active Internet connections (including servers)
Proto Recv-Q Send-Q  Local Address          Foreign Address        (state)
tcp4       0      0  127.0.0.1.8080         *.*                    LISTEN
tcp4       0      0  127.0.0.1.8080         127.0.0.1.50123        ESTABLISHED
tcp6       0      0  ::1.8080               *.*                    LISTEN
tcp46      0      0  *.9000                 *.*                    LISTEN
udp4       0      0  127.0.0.1.8080         *.*
Active LOCAL (UNIX) domain sockets
Address          Type   Recv-Q Send-Q            Inode             Conn             Refs          Nextref Addr
6f1d2e9b0a8c7d15 stream      0      0 6f1d2e9b0a8c7d25                0                0                0 /tmp/LISTEN
`
		windows = `
Active Connections

  Proto  Local Address          Foreign Address        State
  TCP    127.0.0.1:8080         0.0.0.0:0              LISTENING
  TCP    127.0.0.1:8080         127.0.0.1:50123        ESTABLISHED
  TCP    [::1]:8080             [::]:0                 LISTENING
  UDP    127.0.0.1:8080         *:*
`
	)
	double := func(text, line string) string { return strings.Replace(text, line, line+line, 1) }
	for _, c := range []struct {
		what, text string
		ports      []int
		want       bool
	}{
		{"BSD", bsd, []int{8080, 9000}, true},
		{"BSD, twice at one address", double(bsd, "tcp4       0      0  127.0.0.1.8080         *.*                    LISTEN\n"), []int{9000, 8080}, false},
		{"BSD, twice at any", double(bsd, "tcp46      0      0  *.9000                 *.*                    LISTEN\n"), []int{9000}, false},
		{"BSD, twice at another port", double(bsd, "tcp46      0      0  *.9000                 *.*                    LISTEN\n"), []int{8080}, true},
		{"BSD, two connections", double(bsd, "tcp4       0      0  127.0.0.1.8080         127.0.0.1.50123        ESTABLISHED\n"), []int{8080}, true},
		{"Windows", windows, []int{8080}, true},
		{"Windows, twice", double(windows, "  TCP    [::1]:8080             [::]:0                 LISTENING\n"), []int{8080}, false},
	} {
		if got, err := netstatOnce(strings.NewReader(c.text), c.ports); got != c.want || err != nil {
			t.Errorf("%s: netstatOnce() = %v, %v, want %v", c.what, got, err, c.want)
		}
	}
}
